// Hibernate over pgjdbc: its tables, sessions, versions, batches, a lazy relation, its own pool. See lap.py for what a lap is.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import javax.persistence.Column;
import javax.persistence.Entity;
import javax.persistence.FetchType;
import javax.persistence.Id;
import javax.persistence.ManyToOne;
import javax.persistence.Table;
import javax.persistence.Version;
import org.hibernate.Query;
import org.hibernate.ScrollableResults;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.annotations.ForeignKey;
import org.hibernate.annotations.Type;
import org.hibernate.cfg.Configuration;

public class HibernateClient {
    @Entity
    @Table(name = "hibernate_sites")
    public static class Site {
        @Id @Type(type = "pg-uuid") UUID id;
        String name;

        // Of a lazy site, only methods know the row.
        public String getName() {
            return name;
        }
    }

    @Entity
    @Table(name = "hibernate_visits")
    public static class Visit {
        @Id @Type(type = "pg-uuid") UUID id;
        @Version int version;
        // The service has no foreign keys.
        @ManyToOne(fetch = FetchType.LAZY) @ForeignKey(name = "none") Site site;
        @Column(nullable = false) int stars;
    }

    interface Work {
        void run(Session session) throws Exception;
    }

    final SessionFactory sessions;

    HibernateClient(int size, String tables) {
        Configuration configuration = new Configuration().addAnnotatedClass(Site.class).addAnnotatedClass(Visit.class);
        configuration.setProperty("hibernate.dialect", "org.hibernate.dialect.PostgreSQLDialect");
        configuration.setProperty("hibernate.connection.driver_class", "org.postgresql.Driver");
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        String parameters = "?sslmode=" + System.getenv("PGSSLMODE") + "&ApplicationName=hibernate&prepareThreshold=2";
        configuration.setProperty("hibernate.connection.url", url + parameters);
        configuration.setProperty("hibernate.connection.username", System.getenv("PGUSER"));
        configuration.setProperty("hibernate.connection.password", System.getenv("PGPASSWORD"));
        configuration.setProperty("hibernate.connection.pool_size", String.valueOf(size));
        configuration.setProperty("hibernate.jdbc.batch_size", "10");
        configuration.setProperty("hibernate.jdbc.batch_versioned_data", "true");
        configuration.setProperty("hibernate.jdbc.fetch_size", "6");
        configuration.setProperty("hibernate.hbm2ddl.auto", tables);
        sessions = configuration.buildSessionFactory();
    }

    // What JDBC said, wherever Hibernate keeps it.
    static String state(Throwable error) {
        for (; error != null; error = error.getCause()) {
            if (error instanceof SQLException) {
                // An error of a batch has the reason beside it.
                SQLException next = ((SQLException) error).getNextException();
                return next == null ? ((SQLException) error).getSQLState() : next.getSQLState();
            }
        }
        return "none";
    }

    void transaction(Work work) throws Exception {
        for (int attempt = 0; ; attempt += 1) {
            Session session = sessions.openSession();
            try {
                session.beginTransaction();
                work.run(session);
                session.getTransaction().commit();
                return;
            } catch (Exception error) {
                if (session.getTransaction().isActive()) {
                    session.getTransaction().rollback();
                }
                if (!"40001".equals(state(error)) || attempt == 9) {
                    throw error;
                }
                Thread.sleep(ThreadLocalRandom.current().nextInt(20));
            } finally {
                session.close();
            }
        }
    }

    static Query query(Session session, String text, UUID site) {
        return session.createQuery(text).setParameter("site", site);
    }

    static Visit visit(UUID id, Site site, int stars) {
        Visit visit = new Visit();
        visit.id = id;
        visit.site = site;
        visit.stars = stars;
        return visit;
    }

    void round(int number, int round) throws Exception {
        String name = "hibernate-" + number + "-" + round;
        UUID key = UUID.randomUUID();
        UUID first = UUID.randomUUID();
        transaction(session -> JdbcClient.same("lost settings", "application_name",
            session.createSQLQuery("SHOW application_name").uniqueResult(), "hibernate"));
        transaction(session -> {
            Site site = new Site();
            site.id = key;
            site.name = name;
            session.save(site);
            for (int n = 0; n < 25; n += 1) {
                session.save(visit(n == 0 ? first : UUID.randomUUID(), site, n));
            }
        });
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 2; n += 1) {
            threads.add(new Thread(() -> {
                try {
                    transaction(session -> ((Visit) session.get(Visit.class, first)).stars += 1);
                } catch (Exception error) {
                    JdbcClient.failed("errors", error.toString());
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        transaction(session -> {
            Visit visit = (Visit) session.get(Visit.class, first);
            JdbcClient.row("added", visit.stars + "/" + visit.version, "2/2");
            // Another statement, when it is needed.
            JdbcClient.row("lazy", visit.site.getName(), name);
            JdbcClient.row("joined", session.createQuery("select sum(v.stars) from HibernateClient$Visit v where v.site.name = :name")
                .setString("name", name).uniqueResult(), 302L);
            long sum = 0;
            ScrollableResults rows = query(session, "from HibernateClient$Visit v where v.site.id = :site", key).scroll();
            while (rows.next()) {
                sum += ((Visit) rows.get(0)).stars;
            }
            JdbcClient.row("scrolled", sum, 302L);
        });
        try {
            transaction(session -> {
                query(session, "update HibernateClient$Visit v set v.stars = -1 where v.site.id = :site", key).executeUpdate();
                session.save(visit(first, null, 0));
            });
            JdbcClient.row("a key twice", "accepted", "23505");
        } catch (Exception error) {
            JdbcClient.row("a key twice", state(error), "23505");
        }
        transaction(session -> {
            List<?> visits = query(session, "from HibernateClient$Visit v where v.site.id = :site and v.stars >= 0", key).list();
            JdbcClient.row("rolled back", visits.size(), 25);
            // In batches, each with its version.
            visits.forEach(session::delete);
            session.delete(session.load(Site.class, key));
        });
        transaction(session -> JdbcClient.row("deleted", session.get(Visit.class, first), null));
    }

    void lap(int number, long end) {
        while (System.nanoTime() < end) {
            int round = JdbcClient.ROUNDS.incrementAndGet();
            try {
                round(number, round);
            } catch (Exception error) {
                // A connection that was opened before the tables were made fails once with a conflict of the schema.
                if (!String.valueOf(error.getMessage()).contains("OC001") && !String.valueOf(error.getCause()).contains("OC001")) {
                    JdbcClient.failed("errors", error + " " + error.getCause());
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int connections = Integer.parseInt(Objects.requireNonNullElse(System.getenv("CONNECTIONS"), "4"));
        double seconds = Double.parseDouble(Objects.requireNonNullElse(System.getenv("LAP"), "2"));
        boolean migrates = "1".equals(System.getenv("MIGRATE"));
        // It compares the tables with the classes: that reads the catalog.
        HibernateClient client = new HibernateClient(connections, migrates ? "update" : "validate");
        if (migrates) {
            new HibernateClient(1, "validate");
            System.exit(0);
        }
        BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));
        do {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < Math.max(1, connections / 2); number += 1) {
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
