class SitesController < ApplicationController
  def create
    render json: Site.create!(params.permit(:id, :name)), status: :created
  end

  def show
    site = Site.includes(:visits).find(params[:id])
    found = Visit.where(site_id: site.id)
    render json: {
      name: site.name,
      preloaded: site.visits.size,
      counted: found.count,
      joined: Visit.joins(:site).where(rails_sites: { name: site.name }).sum(:stars),
      in_batches: found.find_each(batch_size: 7).sum(&:stars),
    }
  end

  # Ends with a key that is there already: nothing of it may be left.
  def update
    Site.transaction do
      Visit.where(site_id: params[:id]).update_all(stars: -1)
      Site.create!(id: params[:id], name: "again")
    end
    head :no_content
  end

  def destroy
    again { Site.find(params[:id]).destroy! }
    head :no_content
  end

  def name
    render json: { name: Site.connection.select_value("SHOW application_name"), time_zone: Site.connection.select_value("SHOW TimeZone") }
  end
end
