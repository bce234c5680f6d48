//! All connections to the server are cut at once, while their clients are idle.

use std::time::Duration;

use dsql_local::EngineKind;
use tokio::runtime::Runtime;

use super::behind::Behind;
use super::client::Connection;
use super::forebay::Mode;
use super::herd::{self, Tally};
use super::{Arena, Settings, wire};
use crate::clock::{self, Stopwatch};
use crate::report::Report;
use crate::section::progress;

/// Clients, each of which has had a connection to the server.
const CLIENTS: usize = 200;
/// Connections to the server: one for each client, and one to spare.
const BACKENDS: u32 = 201;
/// How long the gateway has to notice before its clients ask again.
const NOTICING: Duration = Duration::from_millis(300);

pub(super) fn measure(arena: &Arena, runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let dsql = Behind::dsql(EngineKind::Builtin)?;
    for behind in [arena.postgres()?, &dsql] {
        for mode in [Mode::Session, Mode::Elastic] {
            let name = format!("all idle backends cut at once, {mode}, {} behind", behind.label);
            progress(&name);
            let settings = Settings { mode, backends: BACKENDS, ..Settings::default() };
            let gateway = arena.gateway(settings, behind)?;
            let mut clients = herd::open(&gateway.door, CLIENTS)?;
            let (mut tally, mut ended) = (Tally::new()?, 0);
            for _ in 0..arena.effort.cuts {
                ended += cut(behind, runtime)?;
                clock::nap(NOTICING);
                tally.add(&ask_all(&mut clients)?)?;
            }
            report.at_most(format!("{name}: clients that notice"), tally.failed(), 0.0, "clients");
            report.note(format!(
                "{name}: {ended} connections ended in {} cuts; the next statement of each of {CLIENTS} clients at \
                 once, p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms; {}",
                arena.effort.cuts,
                tally.millis(0.5),
                tally.millis(0.99),
                tally.millis(1.0),
                if tally.failed() > 0 { tally.describe() } else { "none failed".to_owned() },
            ));
        }
    }
    Ok(())
}

/// Ends all connections at the server. Returns how many.
fn cut(behind: &Behind, runtime: &Runtime) -> anyhow::Result<u64> {
    if !behind.is_dsql() {
        let mut operator = Connection::open(&behind.door()?)?;
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        operator.ask(&wire::query(sql))?;
        return Ok(operator.rows().len() as u64);
    }
    let cluster = behind.cluster()?;
    runtime.block_on(async {
        let (before, live) = (cluster.count("severed").await?, cluster.count("live").await?);
        cluster.inject("sever:fraction=1").await?;
        let watch = Stopwatch::start();
        while cluster.count("severed").await? < before + live && watch.elapsed() < Duration::from_secs(5) {
            clock::pause(Duration::from_millis(1)).await;
        }
        Ok(cluster.count("severed").await? - before)
    })
}

/// Each client asks, all at once.
fn ask_all(clients: &mut [Connection]) -> anyhow::Result<Tally> {
    let ask = |client: &mut Connection| {
        let mut tally = Tally::new()?;
        let one = Stopwatch::start();
        let answer = client.ask(wire::SELECT_1);
        tally.record(one.elapsed(), answer);
        anyhow::Ok(tally)
    };
    let mut all = Tally::new()?;
    for tally in herd::in_threads(clients.iter_mut().collect(), ask) {
        all.add(&tally?)?;
    }
    Ok(all)
}
