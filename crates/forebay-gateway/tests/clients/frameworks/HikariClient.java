// HikariCP over pgjdbc: a pool with a short life of its connections and without, transactions that are run again. See lap.py for what a lap is.

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;

public class HikariClient {
    interface Work {
        void run(Connection connection) throws SQLException;
    }

    final HikariDataSource pool;

    HikariClient(int size) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE")
            + "?sslmode=" + System.getenv("PGSSLMODE") + "&ApplicationName=hikari&prepareThreshold=2");
        config.setUsername(System.getenv("PGUSER"));
        config.setPassword(System.getenv("PGPASSWORD"));
        config.setMaximumPoolSize(size);
        // For ever: the gateway replaces what is behind them.
        config.setMaxLifetime(0);
        config.setAutoCommit(false);
        pool = new HikariDataSource(config);
    }

    void transaction(Work work) throws Exception {
        for (int attempt = 0; ; attempt += 1) {
            try (Connection connection = pool.getConnection()) {
                try {
                    work.run(connection);
                    connection.commit();
                    return;
                } catch (SQLException error) {
                    connection.rollback();
                    if (!"40001".equals(error.getSQLState()) || attempt == 9) {
                        throw error;
                    }
                    Thread.sleep(ThreadLocalRandom.current().nextInt(20));
                }
            }
        }
    }

    static long one(Connection connection, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int n = 0; n < values.length; n += 1) {
                statement.setObject(n + 1, values[n]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getLong(1);
            }
        }
    }

    void round(int number, int round) throws Exception {
        String site = "hikari-" + number + "-" + round;
        UUID key = UUID.randomUUID();
        transaction(connection -> {
            // The pool undoes this when the connection comes back.
            connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery("SHOW application_name")) {
                rows.next();
                JdbcClient.same("lost settings", "application_name", rows.getString(1), "hikari");
            }
        });
        transaction(connection -> {
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO hikari_visits (id, site, stars) VALUES (?, ?, ?)")) {
                for (int n = 0; n < 25; n += 1) {
                    insert.setObject(1, n == 0 ? key : UUID.randomUUID());
                    insert.setString(2, site);
                    insert.setInt(3, n);
                    insert.addBatch();
                }
                JdbcClient.row("batch", insert.executeBatch().length, 25);
            }
        });
        for (int n = 0; n < 4; n += 1) {
            transaction(connection -> {
                long stars = one(connection, "SELECT stars FROM hikari_visits WHERE id = ?", key);
                try (PreparedStatement update = connection.prepareStatement("UPDATE hikari_visits SET stars = ? WHERE id = ?")) {
                    update.setLong(1, stars + 1);
                    update.setObject(2, key);
                    JdbcClient.row("updated", update.executeUpdate(), 1);
                }
            });
        }
        transaction(connection -> {
            connection.setReadOnly(true);
            JdbcClient.row("added", one(connection, "SELECT stars FROM hikari_visits WHERE id = ?", key), 4L);
            try (PreparedStatement select = connection.prepareStatement("SELECT stars FROM hikari_visits WHERE site = ?")) {
                select.setFetchSize(6);
                select.setString(1, site);
                long sum = 0;
                try (ResultSet rows = select.executeQuery()) {
                    while (rows.next()) {
                        sum += rows.getLong(1);
                    }
                }
                JdbcClient.row("fetched", sum, 304L);
            }
        });
        try {
            transaction(connection -> {
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO hikari_visits (id, site) VALUES (?, ?)")) {
                    insert.setObject(1, key);
                    insert.setString(2, site + "-never");
                    insert.executeUpdate();
                }
            });
            JdbcClient.row("a key twice", "accepted", "23505");
        } catch (SQLException error) {
            JdbcClient.row("a key twice", error.getSQLState(), "23505");
        }
        transaction(connection -> {
            JdbcClient.row("rolled back", one(connection, "SELECT count(*) FROM hikari_visits WHERE site = ?", site + "-never"), 0L);
            try (PreparedStatement delete = connection.prepareStatement("DELETE FROM hikari_visits WHERE site = ?")) {
                delete.setString(1, site);
                JdbcClient.row("deleted", delete.executeUpdate(), 25);
            }
        });
    }

    void lap(int number, long end) {
        while (System.nanoTime() < end) {
            int round = JdbcClient.ROUNDS.incrementAndGet();
            try {
                round(number, round);
            } catch (SQLException error) {
                // A connection that was opened before the table was made fails once with a conflict of the schema.
                if (!error.getMessage().contains("OC001")) {
                    JdbcClient.failed("errors", error.toString());
                }
            } catch (Exception error) {
                JdbcClient.failed("errors", error.toString());
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int connections = Integer.parseInt(Objects.requireNonNullElse(System.getenv("CONNECTIONS"), "4"));
        double seconds = Double.parseDouble(Objects.requireNonNullElse(System.getenv("LAP"), "2"));
        HikariClient client = new HikariClient(connections);
        if ("1".equals(System.getenv("MIGRATE"))) {
            try (Connection connection = client.pool.getConnection(); Statement statement = connection.createStatement()) {
                connection.setAutoCommit(true);
                statement.execute("CREATE TABLE hikari_visits (id uuid PRIMARY KEY, site text, stars int)");
            }
            System.exit(0);
        }
        BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));
        do {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < connections; number += 1) {
                int mine = number;
                threads.add(new Thread(() -> client.lap(mine, end)));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            System.out.println("idle");
        } while ("go".equals(answers.readLine()));
        JdbcClient.printCounts();
        System.exit(0);
    }
}
