class CreateSites < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    create_table :rails_sites, id: :uuid do |table|
      table.text :name, null: false
      table.timestamps
    end
  end
end
