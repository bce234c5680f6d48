class Visit < ActiveRecord::Base
  self.table_name = "rails_visits"
  belongs_to :site
end
