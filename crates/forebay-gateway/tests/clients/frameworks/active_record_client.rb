# Active Record, the ORM of Rails: its migrations, its models, its pool, transactions that are run again. See lap.py for what a lap is.

require "active_record"
require "json"
require "securerandom"

CONNECTIONS = Integer(ENV.fetch("CONNECTIONS", "4"))
LAP = Float(ENV.fetch("LAP", "2"))
COUNTS = { "rounds" => 0, "checks" => 0, "errors" => 0, "lost settings" => 0, "wrong rows" => 0, "notes" => [] }
LOCK = Mutex.new
$stdout.sync = true

ENV["PGAPPNAME"] = "active_record"
ActiveRecord::Base.establish_connection(
  adapter: "postgresql", host: ENV["PGHOST"], port: ENV["PGPORT"], database: ENV["PGDATABASE"], username: ENV["PGUSER"],
  password: ENV["PGPASSWORD"], pool: CONNECTIONS, advisory_locks: false, statement_limit: 10,
)
ActiveRecord::Migration.verbose = false

class CreateSites < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    create_table :ar_sites, id: :uuid do |table|
      table.text :name, null: false, index: false
    end
  end
end

class CreateVisits < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    create_table :ar_visits, id: :uuid do |table|
      table.uuid :site_id, null: false
      table.text :path
    end
  end
end

class AddStars < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    add_column :ar_visits, :stars, :integer
  end
end

# Another connection may be behind each statement. None of them fails because of what was changed here.
class ChangeOften < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    create_table :ar_changes, id: :uuid
    40.times do |number|
      add_column :ar_changes, "c#{number}", :integer
      select_value("SELECT 'x'")
      select_value("SELECT count(c#{number}) FROM ar_changes")
    end
  end
end

class Site < ActiveRecord::Base
  self.table_name = "ar_sites"
  has_many :visits, dependent: :delete_all
end

class Visit < ActiveRecord::Base
  self.table_name = "ar_visits"
  belongs_to :site
end

def note(text)
  COUNTS["notes"] << text if COUNTS["notes"].size < 5
end

def same(kind, what, got, expected)
  LOCK.synchronize do
    COUNTS["checks"] += 1
    next if got == expected

    COUNTS[kind] += 1
    note("#{what}: got #{got.inspect[0, 200]}, expected #{expected.inspect[0, 200]}")
  end
end

def row(what, got, expected) = same("wrong rows", what, got, expected)

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

def round_of(number, round)
  name = "rails-#{number}-#{round}"
  same("lost settings", "application_name", ActiveRecord::Base.connection.select_value("SHOW application_name"), "active_record")
  site = Site.create!(name: name)
  again { 20.times { |n| site.visits.create!(path: "/#{n}", stars: n) } }
  Visit.insert_all!(Array.new(20) { |n| { site_id: site.id, path: "/all/#{n}", stars: n } })
  row("found", Site.find(site.id).name, name)
  row("counted", Visit.where(site_id: site.id).count, 40)
  row("summed", Visit.joins(:site).where(ar_sites: { name: name }).sum(:stars), 380)
  row("preloaded", Site.includes(:visits).find_by(name: name).visits.size, 40)
  row("in batches", Visit.where(site_id: site.id).find_each(batch_size: 7).count, 40)
  counter = site.visits.create!(path: "counter", stars: 0)
  threads = Array.new(2) do
    Thread.new do
      ActiveRecord::Base.connection_pool.with_connection do
        again { Visit.find(counter.id).then { |visit| visit.update!(stars: visit.stars + 1) } }
      end
    end
  end
  ActiveRecord::Base.connection_handler.clear_active_connections!
  threads.each(&:join)
  row("added", counter.reload.stars, 2)
  begin
    ActiveRecord::Base.transaction do
      site.visits.update_all(stars: -1)
      Site.create!(id: site.id, name: "again")
    end
    row("a key twice", "accepted", "refused")
  rescue ActiveRecord::RecordNotUnique
    row("a key twice", "refused", "refused")
  end
  row("rolled back", Visit.where(site_id: site.id, stars: -1).count, 0)
  site.destroy
  row("destroyed", Visit.where(site_id: site.id).count, 0)
end

# A run of its own makes the tables.
if ENV["MIGRATE"] == "1"
  migrations = [[1, CreateSites], [2, CreateVisits], [3, AddStars], [4, ChangeOften]].map do |version, migration|
    proxy = ActiveRecord::MigrationProxy.new(migration.name, version, "", "")
    proxy.define_singleton_method(:migration) { @migration ||= migration.new(migration.name, version) }
    proxy
  end
  ActiveRecord::SchemaMigration.create_table
  ActiveRecord::InternalMetadata.create_table
  ActiveRecord::Migrator.new(:up, migrations, ActiveRecord::SchemaMigration).migrate
  exit ActiveRecord::SchemaMigration.all_versions == %w[1 2 3 4]
end

loop do
  finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LAP
  threads = Array.new([CONNECTIONS / 2, 1].max) do |number|
    Thread.new do
      while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
        round = LOCK.synchronize { COUNTS["rounds"] += 1 }
        begin
          round_of(number, round)
        rescue ActiveRecord::SerializationFailure => e
          # A connection that was opened before the migrations fails once, also outside of a transaction.
          raise unless e.message.include?("OC001")
        rescue StandardError => e
          LOCK.synchronize do
            COUNTS["errors"] += 1
            note(e.full_message(highlight: false)[0, 2000])
          end
        ensure
          ActiveRecord::Base.connection_handler.clear_active_connections!
        end
      end
    end
  end
  threads.each(&:join)
  puts "idle"
  break unless $stdin.gets.to_s.strip == "go"
end
puts JSON.generate(COUNTS)
