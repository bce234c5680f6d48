class CreateVisits < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    create_table :rails_visits, id: :uuid do |table|
      table.uuid :site_id, null: false
      table.text :path
      table.timestamps
    end
  end
end
