class Site < ActiveRecord::Base
  self.table_name = "rails_sites"
  has_many :visits, dependent: :delete_all
end
