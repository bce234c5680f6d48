//! Runs the rows on a plain PostgreSQL. The rows that are marked must differ there, so that each of them can
//! fail. All others must pass: they only guard what PostgreSQL does anyway.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use dsql_local::duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::sleep;
use tokio_postgres::NoTls;

use super::WORKERS;
use super::check::{self, Saved};
use super::client::{Attempt, Client, Tls, say};
use super::crowd;
use super::row::{self, Protocol, Row};
use super::run::{MOMENT, first_value, limited, request};
use super::server::{Server, USER};
use super::tree::Node;

/// The timeout of an answer. A wait for a lock never ends, and PostgreSQL detects a deadlock after a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// What rows may leave behind in addition, because PostgreSQL allows more than the service.
const TRACES: &str = "
    SELECT format('%s %s %s %s %s %s %s', (SELECT count(*) FROM pg_database), (SELECT count(*) FROM pg_extension),
      (SELECT count(*) FROM pg_tablespace), (SELECT count(*) FROM pg_foreign_data_wrapper),
      (SELECT count(*) FROM pg_event_trigger), (SELECT count(*) FROM pg_publication),
      (SELECT count(*) FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'))";

/// Removes everything that rows create.
const CLEAN: &str = "
    DO $$ DECLARE name text; BEGIN
      FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
      END LOOP;
      FOR name IN SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' AND rolname <> current_user LOOP
        EXECUTE format('DROP OWNED BY %I CASCADE', name);
        EXECUTE format('DROP ROLE %I', name);
      END LOOP;
      CREATE SCHEMA public;
    END $$";
/// Terminates all other connections; returns how many there are.
const END: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

struct Plain {
    server: Server,
    database: tokio_postgres::Client,
    traces: String,
}

/// Why a row needs the emulator.
fn needs(row: &Row) -> Option<&'static str> {
    let has = |key: &str| row.steps.iter().any(|step| step.get(key).is_some());
    if has("connect") {
        Some("a connect attempt: tokens, TLS, roles")
    } else if has("advance") {
        Some("the emulator's clock")
    } else {
        has("set").then_some("a knob of the emulator")
    }
}

impl Plain {
    async fn start() -> Self {
        let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
        let mut options = tokio_postgres::Config::new();
        options.host_path(server.directory()).user(USER).dbname("postgres");
        let (database, connection) = options.connect(NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let traces = database.query_one(TRACES, &[]).await.unwrap().get(0);
        Self { server, database, traces }
    }

    /// Returns how the row fails, if it does.
    async fn run(&mut self, row: &Row) -> Result<(), String> {
        for protocol in row.protocols {
            let mut sessions = BTreeMap::new();
            let result = self.steps(&mut sessions, row, *protocol).await;
            drop(sessions);
            self.clean().await;
            result.map_err(|failure| format!("{protocol:?}, {failure}"))?;
        }
        Ok(())
    }

    async fn steps(
        &self,
        sessions: &mut BTreeMap<String, Client>,
        row: &Row,
        protocol: Protocol,
    ) -> Result<(), String> {
        let mut saved = Saved::new();
        if !row.fixture.is_empty() {
            let mut session = self.session().await;
            for sql in &row.fixture {
                let exchange = limited(PATIENCE, session.ask(&say::query(sql))).await?;
                check::exchange(&Node::Map(Vec::new()), &exchange, &saved)
                    .map_err(|error| format!("fixture {sql}: {error}"))?;
            }
        }
        for name in row.steps.iter().filter_map(|step| step.text("in")) {
            if !sessions.contains_key(name) {
                sessions.insert(name.to_owned(), self.session().await);
            }
        }
        for (index, step) in row.steps.iter().enumerate() {
            let times = step.text("repeat").map_or(1, |times| times.parse().unwrap());
            for time in 1..=times {
                let result = self.step(sessions, &mut saved, step, (protocol, time)).await;
                result.map_err(|error| format!("step {}: {error}", index + 1))?;
            }
        }
        Ok(())
    }

    async fn step(
        &self,
        sessions: &mut BTreeMap<String, Client>,
        saved: &mut Saved,
        step: &Node,
        (protocol, time): (Protocol, usize),
    ) -> Result<(), String> {
        if step.get("parallel").is_some() {
            return self.parallel(step).await;
        }
        let name = step.text("in").ok_or("a step in no session")?;
        if step.get("drop").is_some() {
            drop(sessions.remove(name));
            return Ok(());
        }
        let session = sessions.get_mut(name).ok_or_else(|| format!("session {name} is not open"))?;
        let limit = if step.get("within").is_some() { MOMENT } else { PATIENCE };
        session.send(&request(step, protocol, time, saved)).await;
        if let Some(after) = step.text("cancel_after") {
            sleep(duration(after).unwrap()).await;
            let mut cancel = vec![0, 0, 0, 16, 4, 210, 22, 46];
            cancel.extend(session.key);
            self.socket().await.write_all(&cancel).await.unwrap();
        }
        let exchange = limited(limit, session.answers()).await?;
        check::compare(&self.database, check::exchange(step, &exchange, saved)?).await?;
        if let Some(name) = step.text("save") {
            saved.insert(name.to_owned(), first_value(&exchange).ok_or("no value to keep")?);
        }
        Ok(())
    }

    async fn parallel(&self, step: &Node) -> Result<(), String> {
        let mut sessions = Vec::new();
        for _ in 0..crowd::size(step) {
            sessions.push(self.session().await);
        }
        crowd::run(step, sessions, self.session().await).await
    }

    async fn socket(&self) -> UnixStream {
        UnixStream::connect(self.server.directory().join(".s.PGSQL.5432")).await.unwrap()
    }

    async fn session(&self) -> Client {
        let attempt = Attempt {
            user: USER.to_owned(),
            token: String::new(),
            database: "postgres".to_owned(),
            sni: false,
            tls: Tls::Off,
            options: Vec::new(),
        };
        Client::log_in(Box::new(self.socket().await), &attempt).await.unwrap()
    }

    /// Restores the state before the row, if necessary with a new server.
    async fn clean(&mut self) {
        let gone = async {
            while self.database.query_one(END, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        limited(PATIENCE, gone).await.unwrap();
        let cleaned = self.database.batch_execute(CLEAN).await;
        let traces: String = self.database.query_one(TRACES, &[]).await.unwrap().get(0);
        if cleaned.is_err() || traces != self.traces {
            *self = Self::start().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_rows_that_say_so_differ_on_a_plain_postgresql() {
    let rows = row::table();
    let mut left_out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &rows {
        if let Some(reason) = needs(row) {
            left_out.entry(reason).or_default().push(&row.name);
        }
    }
    let runnable: Vec<Row> = rows.iter().filter(|row| needs(row).is_none()).cloned().collect();
    let mut workers = Vec::new();
    let count = WORKERS.iter().map(|(_, count)| count).sum();
    for worker in 0..count {
        let share: Vec<Row> = runnable.iter().skip(worker).step_by(count).cloned().collect();
        workers.push(tokio::spawn(async move {
            let mut plain = Plain::start().await;
            let mut results = BTreeMap::new();
            for row in share {
                let result = plain.run(&row).await;
                results.insert(row.name.clone(), result);
            }
            results
        }));
    }
    let mut results = BTreeMap::new();
    for worker in workers {
        results.extend(worker.await.unwrap());
    }
    if let Some(path) = std::env::var_os("FOREBAY_PLAIN_TABLE") {
        std::fs::write(path, page(&results, &left_out)).unwrap();
    }
    let mut report = String::new();
    for row in &runnable {
        match (&results[&row.name], row.differs()) {
            (Ok(()), true) => writeln!(report, "{}: differs, it says, but it is the same", row.name),
            (Err(how), false) => writeln!(report, "{}: the same, it says, but: {how}", row.name),
            _ => Ok(()),
        }
        .unwrap();
    }
    assert!(report.is_empty(), "{report}");
}

/// The results in Markdown.
fn page(results: &BTreeMap<String, Result<(), String>>, left_out: &BTreeMap<&str, Vec<&str>>) -> String {
    let differ: Vec<_> =
        results.iter().filter_map(|(name, result)| Some((name, result.as_ref().err()?))).collect();
    let mut page = format!("| rows | |\n|---|---|\n| differ | {} |\n", differ.len());
    writeln!(page, "| are the same | {} |", results.len() - differ.len()).unwrap();
    for (reason, names) in left_out {
        writeln!(page, "| cannot be run there: {reason} | {} |", names.len()).unwrap();
    }
    page += "\n| row | what a plain PostgreSQL does instead |\n|---|---|\n";
    for (name, how) in differ {
        let how: String = how.replace('|', "\\|").replace('\n', " ").chars().take(200).collect();
        writeln!(page, "| {name} | {how} |").unwrap();
    }
    for (reason, names) in left_out {
        writeln!(page, "| {} | cannot be run: {reason} |", names.join(", ")).unwrap();
    }
    page
}
