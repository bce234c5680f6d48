// pgjdbc: statements that it names after the fifth use, batches, fetch sizes, COPY, client info, isValid. See lap.py for what a lap is.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.io.StringWriter;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;

// By its name in the manual: the driver's own classes are not needed to compile this.
public class JdbcClient {
    static final boolean UNDOES_SET = "1".equals(System.getenv("UNDOES_SET"));
    static final boolean COPIES = !"0".equals(System.getenv("COPIES"));
    static final AtomicInteger ROUNDS = new AtomicInteger();
    static final AtomicInteger CHECKS = new AtomicInteger();
    static final Map<String, AtomicInteger> FAILED = new LinkedHashMap<>();
    static final List<String> NOTES = Collections.synchronizedList(new ArrayList<>());

    static {
        for (String kind : List.of("errors", "lost settings", "wrong rows")) {
            FAILED.put(kind, new AtomicInteger());
        }
    }

    interface Work {
        void run() throws Exception;
    }

    static void failed(String kind, String note) {
        FAILED.get(kind).incrementAndGet();
        if (NOTES.size() < 5) {
            NOTES.add(note);
        }
    }

    static void same(String kind, String what, Object got, Object expected) {
        CHECKS.incrementAndGet();
        if (!Objects.equals(got, expected)) {
            failed(kind, what + ": got " + got + ", expected " + expected);
        }
    }

    static void row(String what, Object got, Object expected) {
        same("wrong rows", what, got, expected);
    }

    static void refused(String what, String code, Work work) throws Exception {
        try {
            work.run();
            row(what, "none", code);
        } catch (SQLException error) {
            row(what, error.getSQLState(), code);
        }
    }

    static void pause() throws InterruptedException {
        Thread.sleep(new int[] {0, 0, 2, 20}[ThreadLocalRandom.current().nextInt(4)]);
    }

    final int number;
    Connection connection;
    String name;
    List<PreparedStatement> prepared;

    JdbcClient(int number) {
        this.number = number;
    }

    void open() throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        properties.setProperty("sslmode", System.getenv("PGSSLMODE"));
        properties.setProperty("ApplicationName", "jdbc-" + number);
        // Then it sends the name at the start, and not with SET behind it.
        properties.setProperty("assumeMinServerVersion", "16");
        properties.setProperty("prepareThreshold", "2");
        properties.setProperty("preparedStatementCacheQueries", "8");
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        connection = DriverManager.getConnection(url, properties);
        name = "jdbc-" + number;
        prepared = new ArrayList<>();
        for (int n = 0; n < 4; n += 1) {
            prepared.add(connection.prepareStatement("SELECT ?::int + " + n));
        }
    }

    Object one(String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            return first(statement, values);
        }
    }

    static Object first(PreparedStatement statement, Object... values) throws SQLException {
        for (int n = 0; n < values.length; n += 1) {
            statement.setObject(n + 1, values[n]);
        }
        try (ResultSet rows = statement.executeQuery()) {
            return rows.next() ? rows.getObject(1) : null;
        }
    }

    void execute(String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    void settings() throws SQLException {
        same("lost settings", "application_name", one("SHOW application_name"), name);
    }

    void round(int round) throws Exception {
        settings();
        for (int n = 0; n < prepared.size(); n += 1) {
            row("prepared", first(prepared.get(n), round), round + n);
        }
        for (int n = 0; n < 10; n += 1) {
            row("cached", one("SELECT ?::int * " + n, round), round * n);
        }
        row("valid", connection.isValid(5), true);
        pause();
        name = "jdbc-" + number + "-" + round;
        if (round % 2 == 0) {
            execute("SET application_name = '" + name + "'");
        } else {
            connection.setClientInfo("ApplicationName", name);
        }
        pause();
        transaction(round);
        settings();
        batch(round);
        refused("an error", "22012", () -> one("SELECT ?::int / 0", round));
        refused("a bad statement", "42601", () -> execute("SELECT 1; SELEKT 2"));
        if (round % 3 == 0) {
            row("large row", one("SELECT repeat(?, 300000)", "x").toString().length(), 300000);
            row("large parameter", one("SELECT length(?)", "y".repeat(300000)), 300000);
        }
        if (COPIES && round % 3 == 1) {
            copy(round);
        }
        if (round % 5 == 0) {
            // As pools do. The driver hears of it and prepares again.
            execute("DISCARD ALL");
            name = "jdbc-" + number;
        }
        if (round % 5 == 2) {
            execute("DEALLOCATE ALL");
        }
        settings();
    }

    void transaction(int round) throws Exception {
        UUID key = UUID.randomUUID();
        connection.setAutoCommit(false);
        try {
            if (UNDOES_SET) {
                execute("SET LOCAL application_name = 'local'");
            }
            update("INSERT INTO judged (id, client, n) VALUES (?, ?, ?)", key, "jdbc-" + number, round);
            pause();
            // A portal that is suspended after each ten rows.
            try (PreparedStatement statement = connection.prepareStatement("SELECT n FROM generate_series(1, 45) AS n")) {
                statement.setFetchSize(10);
                int sum = 0;
                try (ResultSet rows = statement.executeQuery()) {
                    while (rows.next()) {
                        sum += rows.getInt(1);
                    }
                }
                row("fetched", sum, 1035);
            }
            connection.commit();
            row("committed", one("SELECT n FROM judged WHERE id = ?", key), round);
            connection.rollback();
            if (UNDOES_SET) {
                execute("SET application_name = 'undone'");
            }
            update("UPDATE judged SET n = -1 WHERE id = ?", key);
            refused("in a transaction", "22012", () -> one("SELECT ?::int / 0", round));
            refused("a failed transaction", "25P02", () -> one("SELECT ?::int", round));
            connection.rollback();
        } finally {
            connection.setAutoCommit(true);
        }
        row("rolled back", one("SELECT n FROM judged WHERE id = ?", key), round);
        update("DELETE FROM judged WHERE id = ?", key);
    }

    int update(String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int n = 0; n < values.length; n += 1) {
                statement.setObject(n + 1, values[n]);
            }
            return statement.executeUpdate();
        }
    }

    void batch(int round) throws Exception {
        String group = "jdbc-batch-" + number + "-" + round;
        fill(group, 30, -1);
        refused("a key twice", "23505", () -> fill(group, 30, 20));
        row("batch", one("SELECT count(*) FROM judged WHERE client = ?", group), 30L);
        update("DELETE FROM judged WHERE client = ?", group);
    }

    void fill(String group, int rows, int again) throws SQLException {
        UUID twice = UUID.randomUUID();
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO judged (id, client, n) VALUES (?, ?, ?)")) {
            for (int n = 0; n < rows; n += 1) {
                statement.setObject(1, again >= 0 && n >= again ? twice : UUID.randomUUID());
                statement.setString(2, group);
                statement.setInt(3, n);
                statement.addBatch();
            }
            statement.executeBatch();
            connection.commit();
        } catch (SQLException error) {
            connection.rollback();
            throw error;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    void copy(int round) throws Exception {
        String group = "jdbc-copy-" + number + "-" + round;
        Object manager = connection.unwrap(Class.forName("org.postgresql.PGConnection"));
        Object api = Class.forName("org.postgresql.PGConnection").getMethod("getCopyAPI").invoke(manager);
        StringBuilder text = new StringBuilder();
        StringBuilder expected = new StringBuilder();
        for (int n = 0; n < 20; n += 1) {
            text.append(UUID.randomUUID()).append('\t').append(group).append('\t').append(n).append('\n');
            expected.append(n).append('\n');
        }
        api.getClass().getMethod("copyIn", String.class, java.io.Reader.class)
            .invoke(api, "COPY judged (id, client, n) FROM STDIN", new StringReader(text.toString()));
        StringWriter got = new StringWriter();
        api.getClass().getMethod("copyOut", String.class, java.io.Writer.class)
            .invoke(api, "COPY (SELECT n FROM judged WHERE client = '" + group + "' ORDER BY n) TO STDOUT", got);
        row("copied", got.toString(), expected.toString());
        update("DELETE FROM judged WHERE client = ?", group);
    }

    void lap(long end) {
        while (System.nanoTime() < end) {
            try {
                round(ROUNDS.incrementAndGet());
            } catch (Exception error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new java.io.PrintWriter(trace));
                failed("errors", trace.toString());
                try {
                    open();
                } catch (SQLException again) {
                    failed("errors", again.toString());
                    return;
                }
            }
        }
    }

    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            quoted.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return quoted.append('"').toString();
    }

    static void printCounts() {
        StringBuilder counts = new StringBuilder("{\"rounds\": " + ROUNDS + ", \"checks\": " + CHECKS);
        FAILED.forEach((kind, count) -> counts.append(", \"" + kind + "\": " + count));
        List<String> notes = new ArrayList<>();
        NOTES.forEach(note -> notes.add(quote(note)));
        System.out.println(counts + ", \"notes\": [" + String.join(", ", notes) + "]}");
    }

    public static void main(String[] arguments) throws Exception {
        int connections = Integer.parseInt(Objects.requireNonNullElse(System.getenv("CONNECTIONS"), "4"));
        double seconds = Double.parseDouble(Objects.requireNonNullElse(System.getenv("LAP"), "2"));
        List<JdbcClient> clients = new ArrayList<>();
        for (int number = 0; number < connections; number += 1) {
            JdbcClient client = new JdbcClient(number);
            client.open();
            clients.add(client);
        }
        BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));
        do {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            List<Thread> threads = new ArrayList<>();
            for (JdbcClient client : clients) {
                Thread thread = new Thread(() -> client.lap(end));
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            System.out.println("idle");
        } while ("go".equals(answers.readLine()));
        printCounts();
        System.exit(0);
    }
}
