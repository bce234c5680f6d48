require "rails"
require "active_record/railtie"
require "action_controller/railtie"

class Judged < Rails::Application
  config.load_defaults 6.1
  config.api_only = true
  config.eager_load = true
  config.secret_key_base = "not a secret"
  config.hosts.clear
  config.log_level = :warn
  config.logger = ActiveSupport::Logger.new($stderr)
end
