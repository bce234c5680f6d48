class ApplicationController < ActionController::API
  # The last one that fits is used.
  rescue_from(StandardError) { |error| render json: { error: error.full_message(highlight: false) }, status: :internal_server_error }
  rescue_from(ActiveRecord::RecordNotFound) { |error| render json: { error: error.message }, status: :not_found }
  rescue_from(ActiveRecord::RecordNotUnique) { |error| render json: { error: error.message }, status: :conflict }

  private

  # A transaction, which is run again if it met a conflict.
  def again
    attempt = 0
    begin
      ActiveRecord::Base.transaction { yield }
    rescue ActiveRecord::SerializationFailure
      raise if (attempt += 1) == 10

      sleep(rand * 0.02)
      retry
    end
  end
end
