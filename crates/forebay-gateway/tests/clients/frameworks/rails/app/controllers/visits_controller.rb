class VisitsController < ApplicationController
  def create
    site = Site.find(params[:site_id])
    visits = nil
    again { visits = Array.new(Integer(params[:count])) { |n| site.visits.create!(path: "/#{n}", stars: n) } }
    render json: visits.first, status: :created
  end

  def update
    visit = nil
    again do
      visit = Visit.find(params[:id])
      visit.update!(stars: visit.stars + 1)
    end
    render json: visit
  end
end
