class AddStars < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    add_column :rails_visits, :stars, :integer
  end
end
