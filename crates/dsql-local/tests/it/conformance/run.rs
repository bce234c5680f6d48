//! Runs rows against an emulator.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::BytesMut;
use dsql_local::postgres::Postgres;
use dsql_local::{Action, Cluster, Config, Credentials, Limits, Rules, duration, sign};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use tokio_postgres::NoTls;

use super::check::{self, Saved, fill};
use super::client::{Attempt, Client, Exchange, Tls, say};
use super::crowd;
use super::row::{Protocol, Row};
use super::tree::Node;
use crate::harness::{ENDPOINT, config, eventually, keys, socket};

/// The timeout of a step that does not test waiting.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The timeout of a step that tests waiting. A wait for a lock never ends; half a second tells it from an
/// answer, except on a very busy machine. The times in the table are for measurements.
pub(super) const MOMENT: Duration = Duration::from_millis(500);
/// The beginning of a failure that is only about time.
pub(super) const LATE: &str = "no answer in";
const TOKEN_LIFE: Duration = Duration::from_secs(900);

/// Removes everything that rows create.
const CLEAN: &str = "
    DO $$ DECLARE name text; BEGIN
      FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'sys') LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
      END LOOP;
      FOR name IN SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' AND rolname NOT IN ('admin', current_user) LOOP
        EXECUTE format('DROP OWNED BY %I CASCADE', name);
        EXECUTE format('DROP ROLE %I', name);
      END LOOP;
      DELETE FROM pg_catalog.dsql_local_jobs;
      DELETE FROM pg_catalog.dsql_local_iam;
      CREATE SCHEMA public AUTHORIZATION pg_database_owner;
      GRANT USAGE ON SCHEMA public TO PUBLIC;
    END $$";
/// Terminates what a failed row has left running.
const END: &str = "
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'";

pub(super) struct World {
    cluster: Cluster,
    /// A connection without the rules.
    database: tokio_postgres::Client,
}

/// The state of one run of a row.
#[derive(Default)]
struct Run {
    sessions: BTreeMap<String, Client>,
    saved: Saved,
}

impl World {
    pub(super) async fn start(rules: Rules) -> Self {
        let mut directory = None;
        let config = Config { rules, ..config() };
        let cluster = Cluster::start_with(config.clone(), |_, clock| {
            let postgres = Postgres::start(&config, clock)?;
            directory = Some(postgres.directory().to_owned());
            Ok(postgres)
        });
        let cluster = cluster.unwrap();
        let mut options = tokio_postgres::Config::new();
        options
            .host_path(directory.unwrap())
            .user(Postgres::SUPERUSER)
            .dbname("postgres")
            .options("-c lock_timeout=0");
        let (database, connection) = options.connect(NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Self { cluster, database }
    }

    /// Runs a row with each of its protocols.
    pub(super) async fn run(&mut self, row: &Row) -> Result<(), String> {
        for protocol in row.protocols {
            let mut run = Run::default();
            let result = self.steps(&mut run, row, *protocol).await;
            drop(run);
            self.clean().await;
            result.map_err(|failure| format!("{protocol:?}, {failure}"))?;
        }
        Ok(())
    }

    async fn steps(&self, run: &mut Run, row: &Row, protocol: Protocol) -> Result<(), String> {
        if !row.fixture.is_empty() {
            let mut session = self.session().await?;
            for sql in &row.fixture {
                let exchange = limited(PATIENCE, session.ask(&say::query(sql))).await?;
                let nothing = Node::Map(Vec::new());
                check::exchange(&nothing, &exchange, &run.saved)
                    .map_err(|error| format!("fixture {sql}: {error}"))?;
            }
        }
        let opened: Vec<&str> = row.steps.iter().filter_map(|step| step.text("as")).collect();
        for name in row.steps.iter().filter_map(|step| step.text("in")) {
            if !opened.contains(&name) && !run.sessions.contains_key(name) {
                let mut session = self.session().await?;
                limited(PATIENCE, session.ask(&say::query("SELECT 1"))).await?;
                run.sessions.insert(name.to_owned(), session);
            }
        }
        for (index, step) in row.steps.iter().enumerate() {
            let times = step.text("repeat").map_or(1, |times| times.parse().unwrap());
            for time in 1..=times {
                let result = self.step(run, step, protocol, time).await;
                result.map_err(|error| format!("step {}: {error}", index + 1))?;
            }
        }
        Ok(())
    }

    async fn step(&self, run: &mut Run, step: &Node, protocol: Protocol, time: usize) -> Result<(), String> {
        if let Some(by) = step.text("advance") {
            self.cluster.clock().advance(duration(by).unwrap());
            return Ok(());
        }
        if let Some(knobs) = step.get("set") {
            self.set(knobs);
            return Ok(());
        }
        if let Some(attempt) = step.get("connect") {
            return self.connect(run, step, attempt).await;
        }
        if step.get("parallel").is_some() {
            return self.parallel(step).await;
        }
        let name = step.text("in").ok_or("a step in no session")?;
        if step.get("drop").is_some() {
            let live = self.cluster.counters().live;
            drop(run.sessions.remove(name));
            eventually("the server notices", || self.cluster.counters().live < live).await;
            return Ok(());
        }
        let session = run.sessions.get_mut(name).ok_or_else(|| format!("session {name} is not open"))?;
        if step.get("closed").is_some() && timeout(MOMENT, session.ended()).await.is_ok() {
            // The server has closed the connection by its clock.
            return Ok(());
        }
        let request = request(step, protocol, time, &run.saved);
        let limit = if step.get("within").is_some() { MOMENT } else { PATIENCE };
        let exchange = match step.text("cancel_after") {
            None => limited(limit, session.ask(&request)).await?,
            Some(after) => {
                session.send(&request).await;
                sleep(duration(after).unwrap()).await;
                let mut cancel = vec![0, 0, 0, 16, 4, 210, 22, 46];
                cancel.extend(session.key);
                socket(self.cluster.address()).await.write_all(&cancel).await.unwrap();
                limited(limit, session.answers()).await?
            }
        };
        let matches = check::exchange(step, &exchange, &run.saved)?;
        check::compare(&self.database, matches).await?;
        if let Some(name) = step.text("save") {
            run.saved.insert(name.to_owned(), first_value(&exchange).ok_or("no value to keep")?);
        }
        Ok(())
    }

    fn set(&self, knobs: &Node) {
        let mut limits = self.cluster.limits();
        for (knob, value) in knobs.entries() {
            let value = value.as_text().unwrap();
            match knob.as_str() {
                "connection_cap" => limits.connections = value.parse().unwrap(),
                "connect_burst" => limits.burst = value.parse().unwrap(),
                "connect_rate" => limits.per_second = value.parse().unwrap(),
                "cluster" if value == "waking" => {
                    self.cluster.inject("refuse:how=waking".parse().unwrap());
                }
                "cluster" => self.cluster.heal_all(),
                "fault" => drop(self.cluster.inject(value.parse().unwrap())),
                other => panic!("an unknown knob: {other}"),
            }
        }
        self.cluster.set_limits(limits);
        self.cluster.refill();
    }

    async fn connect(&self, run: &mut Run, step: &Node, attempt: &Node) -> Result<(), String> {
        let attempt = self.attempt(attempt);
        let outcome = limited(PATIENCE, Client::connect(&self.cluster, &attempt)).await?;
        if step.get("ok").is_some() {
            let session = outcome.map_err(|refusal| format!("expected a session, got {refusal:?}"))?;
            for (name, value) in step.get("parameters").map_or(&[][..], Node::entries) {
                let told = session.parameters.get(name).map(String::as_str);
                if told != value.as_text() {
                    return Err(format!("expected {name} {value:?}, got {told:?}"));
                }
            }
            run.sessions.insert(step.text("as").unwrap_or_default().to_owned(), session);
            return Ok(());
        }
        let refusal = outcome.err().ok_or("expected a refusal, got a session")?;
        if step.get("refused").is_some() {
            return if refusal.asked { Err("the token was asked for".to_owned()) } else { Ok(()) };
        }
        let answer = refusal.answer.ok_or("refused without a word")?;
        check::compare(&self.database, check::answer(step, &answer)?).await
    }

    fn attempt(&self, node: &Node) -> Attempt {
        let user = node.text("user").unwrap();
        let (now, own) = (self.cluster.clock().date(), Action::for_role(user));
        let other = if own == Action::Connect { Action::ConnectAdmin } else { Action::Connect };
        let good = |key: &Credentials, host: &str, region: &str, action, at| {
            sign(key, host, region, action, at, TOKEN_LIFE)
        };
        let (key, region) = (keys(), "us-east-1");
        let token = match node.text("token").unwrap() {
            "valid" => good(&key, ENDPOINT, region, own, now),
            "expired" => good(&key, ENDPOINT, region, own, now - TOKEN_LIFE - Duration::from_secs(1)),
            "other-host" => good(&key, "xyz.dsql.us-east-1.on.aws", region, own, now),
            "other-region" => good(&key, ENDPOINT, "us-west-2", own, now),
            "other-action" => good(&key, ENDPOINT, region, other, now),
            "other-key" => good(&Credentials::new("AKIDOTHER", "x"), ENDPOINT, region, own, now),
            "none" => String::new(),
            other => panic!("an unknown kind of token: {other}"),
        };
        let options = node.get("options").map_or(&[][..], Node::entries);
        Attempt {
            user: user.to_owned(),
            token,
            database: node.text("database").unwrap_or("postgres").to_owned(),
            sni: node.text("sni") != Some("none"),
            tls: match node.text("ssl") {
                Some("off") => Tls::Off,
                Some("direct") => Tls::Direct,
                _ => Tls::Asked,
            },
            options: options
                .iter()
                .map(|(name, value)| (name.clone(), value.as_text().unwrap().to_owned()))
                .collect(),
        }
    }

    async fn session(&self) -> Result<Client, String> {
        let entries = [("user", "admin"), ("token", "valid")];
        let entries = entries.map(|(key, value)| (key.to_owned(), Node::Text(value.to_owned())));
        let attempt = self.attempt(&Node::Map(entries.to_vec()));
        let connected = limited(PATIENCE, Client::connect(&self.cluster, &attempt)).await?;
        connected.map_err(|refusal| format!("no session: {refusal:?}"))
    }

    async fn parallel(&self, step: &Node) -> Result<(), String> {
        let mut sessions = Vec::new();
        for _ in 0..crowd::size(step) {
            sessions.push(self.session().await?);
        }
        crowd::run(step, sessions, self.session().await?).await
    }

    /// Restores the state before the row.
    async fn clean(&self) {
        let gone = async {
            while self.cluster.counters().live > 0 {
                self.database.batch_execute(END).await.unwrap();
                sleep(Duration::from_millis(1)).await;
            }
        };
        limited(PATIENCE, gone).await.unwrap();
        self.database.batch_execute(END).await.unwrap();
        self.database.batch_execute(CLEAN).await.unwrap();
        self.cluster.heal_all();
        self.cluster.set_limits(Limits::default());
        self.cluster.refill();
    }
}

/// What a step sends.
pub(super) fn request(step: &Node, protocol: Protocol, time: usize, saved: &Saved) -> BytesMut {
    let sql = expand(&fill(step.text("sql").unwrap_or_default(), saved), time);
    let param = |node: &Node| node.as_text().map(|text| fill(text, saved));
    let params: Vec<Option<String>> = step.list("params").iter().map(param).collect();
    let mut out = BytesMut::new();
    if let Some(name) = step.text("prepare") {
        say::parse(&mut out, name, &sql);
    } else if let Some(name) = step.text("execute") {
        say::execute(&mut out, name, &params);
    } else if step.get("pipeline").is_some() {
        for sql in step.list("pipeline").iter().filter_map(Node::as_text) {
            say::parse(&mut out, "", sql);
            say::execute(&mut out, "", &[]);
        }
    } else if protocol == Protocol::Simple && params.is_empty() {
        out = say::query(&sql);
        if let Some(data) = step.text("copy") {
            say::copy(&mut out, &expand(data, time));
        }
        return out;
    } else {
        say::parse(&mut out, "", &sql);
        say::execute(&mut out, "", &params);
    }
    if let Some(data) = step.text("copy") {
        say::copy(&mut out, &expand(data, time));
    }
    say::sync(&mut out);
    out
}

/// Writes out `{{i}}`, `{{x*100}}` and `{{c1..c257 int}}`.
fn expand(sql: &str, time: usize) -> String {
    let Some((before, rest)) = sql.split_once("{{") else { return sql.to_owned() };
    let (inside, after) = rest.split_once("}}").expect("a closed template");
    let middle = if let Some((text, times)) = inside.split_once('*') {
        text.repeat(times.parse().unwrap())
    } else if let Some((first, last)) = inside.split_once("..") {
        let (last, kind) = last.split_once(' ').unwrap();
        let prefix = first.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let number = |name: &str| name[prefix.len()..].parse::<usize>().unwrap();
        let columns = (number(first)..=number(last)).map(|number| format!("{prefix}{number} {kind}"));
        columns.collect::<Vec<_>>().join(", ")
    } else {
        assert_eq!(inside, "i", "an unknown template");
        time.to_string()
    };
    format!("{before}{middle}{}", expand(after, time))
}

pub(super) fn first_value(exchange: &Exchange) -> Option<String> {
    exchange.answers.first()?.rows.first()?.first()?.clone()
}

pub(super) async fn limited<F: Future>(limit: Duration, future: F) -> Result<F::Output, String> {
    timeout(limit, future).await.map_err(|_| format!("{LATE} {limit:?}"))
}
