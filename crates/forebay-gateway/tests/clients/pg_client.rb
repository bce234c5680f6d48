# ruby-pg: named statements, pipelines, single-row mode, COPY, DISCARD ALL. See lap.py for what a lap is.

require "json"
require "pg"
require "securerandom"

CONNECTIONS = Integer(ENV.fetch("CONNECTIONS", "4"))
LAP = Float(ENV.fetch("LAP", "2"))
UNDOES_SET = ENV["UNDOES_SET"] == "1"
COPIES = ENV["COPIES"] != "0"
COUNTS = { "rounds" => 0, "checks" => 0, "errors" => 0, "lost settings" => 0, "wrong rows" => 0, "notes" => [] }
$stdout.sync = true

def note(text)
  COUNTS["notes"] << text if COUNTS["notes"].size < 5
end

def same(kind, what, got, expected)
  COUNTS["checks"] += 1
  return if got == expected

  COUNTS[kind] += 1
  note("#{what}: got #{got.inspect[0, 200]}, expected #{expected.inspect[0, 200]}")
end

def row(what, got, expected) = same("wrong rows", what, got, expected)

def refused(what, error)
  yield
  row(what, "none", error.name)
rescue PG::Error => e
  row(what, e.class.name, error.name)
end

def pause = sleep([0, 0, 0.002, 0.02].sample)

class Client
  def initialize(number)
    @number = number
    @name = "ruby-#{number}"
    @pg = PG.connect(application_name: @name)
    prepare
  end

  def prepare
    5.times { |n| @pg.prepare("add#{n}", "SELECT $1::int + #{n} AS sum") }
  end

  def settings
    same("lost settings", "application_name", @pg.exec("SHOW application_name").getvalue(0, 0), @name)
    same("lost settings", "reported", @pg.parameter_status("application_name"), @name)
  end

  def round(round)
    settings
    5.times { |n| row("named", @pg.exec_prepared("add#{n}", [round]).getvalue(0, 0), (round + n).to_s) }
    row("described", @pg.describe_prepared("add1").fname(0), "sum")
    row("unnamed", @pg.exec_params("SELECT $1::text", ["#{@number}/#{round}"]).getvalue(0, 0), "#{@number}/#{round}")
    row("simple", @pg.exec("SELECT 1; SELECT 2").getvalue(0, 0), "2")
    refused("a bad batch", PG::SyntaxError) { @pg.exec("SELECT 1; SELEKT 2") }
    pause
    @name = "ruby-#{@number}-#{round}"
    @pg.exec("SET application_name = '#{@name}'")
    pause
    pipeline(round)
    transaction(round)
    settings
    large if (round % 3).zero?
    copy(round) if COPIES && round % 3 == 1
    reset if (round % 5).zero?
    deallocate if (round % 5) == 2
    settings
  end

  # The second segment fails and the others do not.
  def pipeline(round)
    @pg.enter_pipeline_mode
    @pg.send_query_prepared("add1", [round])
    @pg.send_query_params("SELECT $1::int * 2", [round])
    @pg.pipeline_sync
    @pg.send_query_prepared("add2", [round])
    @pg.send_query_params("SELECT 1 / $1::int", [0])
    @pg.send_query_prepared("add3", [round])
    @pg.pipeline_sync
    @pg.send_query_prepared("add4", [round])
    @pg.pipeline_sync
    got = []
    syncs = 0
    while syncs < 3
      result = @pg.get_result
      next if result.nil?

      case result.result_status
      when PG::PGRES_PIPELINE_SYNC then syncs += 1
      when PG::PGRES_TUPLES_OK then got << result.getvalue(0, 0)
      when PG::PGRES_PIPELINE_ABORTED then got << "skipped"
      else got << result.error_field(PG::PG_DIAG_SQLSTATE)
      end
    end
    @pg.exit_pipeline_mode
    expected = [round + 1, round * 2, round + 2, "22012", "skipped", round + 4].map(&:to_s)
    row("pipeline", got, expected)
  end

  def transaction(round)
    key = SecureRandom.uuid
    @pg.transaction do
      @pg.exec("SET LOCAL application_name = 'local'") if UNDOES_SET
      @pg.exec_params("INSERT INTO judged (id, client, n) VALUES ($1, $2, $3)", [key, "ruby-#{@number}", round])
      pause
      @pg.send_query("SELECT n FROM generate_series(1, 50) AS n")
      @pg.set_single_row_mode
      got = []
      @pg.get_result.stream_each { |r| got << r["n"].to_i }
      @pg.get_result
      row("single rows", got, (1..50).to_a)
    end
    look = -> { @pg.exec_params("SELECT n FROM judged WHERE id = $1", [key]).getvalue(0, 0) }
    row("committed", look.call, round.to_s)
    refused("an error", PG::DivisionByZero) do
      @pg.transaction do
        @pg.exec("SET application_name = 'undone'") if UNDOES_SET
        @pg.exec_params("UPDATE judged SET n = -1 WHERE id = $1", [key])
        @pg.exec_prepared("add1", [round])
        @pg.exec("SELECT 1 / 0")
      end
    end
    row("rolled back", look.call, round.to_s)
    @pg.exec_params("DELETE FROM judged WHERE id = $1", [key])
  end

  def large
    row("large row", @pg.exec("SELECT repeat('x', 300000)").getvalue(0, 0).size, 300_000)
    row("large parameter", @pg.exec_params("SELECT length($1::text)", ["y" * 300_000]).getvalue(0, 0), "300000")
  end

  def copy(round)
    name = "ruby-copy-#{@number}-#{round}"
    @pg.copy_data("COPY judged (id, client, n) FROM STDIN") do
      20.times { |n| @pg.put_copy_data("#{SecureRandom.uuid}\t#{name}\t#{n}\n") }
    end
    got = []
    @pg.copy_data("COPY (SELECT n FROM judged WHERE client = '#{name}' ORDER BY n) TO STDOUT") do
      while (line = @pg.get_copy_data)
        got << line.to_i
      end
    end
    row("copied", got, (0...20).to_a)
    @pg.exec_params("DELETE FROM judged WHERE client = $1", [name])
  end

  def reset
    @pg.exec("DISCARD ALL")
    @name = "ruby-#{@number}"
    refused("discarded", PG::InvalidSqlStatementName) { @pg.exec_prepared("add1", [1]) }
    prepare
  end

  def deallocate
    @pg.exec("DEALLOCATE add1")
    refused("deallocated", PG::InvalidSqlStatementName) { @pg.exec_prepared("add1", [1]) }
    @pg.prepare("add1", "SELECT $1::int + 1 AS sum")
    refused("prepared twice", PG::DuplicatePstatement) { @pg.prepare("add1", "SELECT 1") }
  end
end

clients = Array.new(CONNECTIONS) { |number| Client.new(number) }
loop do
  finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LAP
  threads = clients.each_index.map do |number|
    Thread.new do
      while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
        round = (COUNTS["rounds"] += 1)
        begin
          clients[number].round(round)
        rescue StandardError => e
          COUNTS["errors"] += 1
          note("#{e.class}: #{e.message}\n#{e.backtrace.first(5).join("\n")}")
          clients[number] = Client.new(number)
        end
      end
    end
  end
  threads.each(&:join)
  puts "idle"
  break unless $stdin.gets.to_s.strip == "go"
end
puts JSON.generate(COUNTS)
