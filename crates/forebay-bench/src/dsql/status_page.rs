//! What a status page costs a service: not open, open, and scraped every second.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;
use std::{io, thread};

use anyhow::Context;
use dsql_local::EngineKind;
use forebay::Config;
use forebay_dsql::{Dsql, OptionsBuilder};
use tokio::runtime::Runtime;

use super::Effort;
use super::borrow::crowd;
use super::callers::CALLERS;
use super::contestants::{ACQUIRE_TIMEOUT, options_builder};
use crate::clock;
use crate::cluster::Cluster;
use crate::process::{processor_time, this_program};
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};
use crate::section::progress;

/// More connections than callers: the page lists all of them.
const CONNECTIONS: usize = 100;
const WITHOUT: &str = "without a page";
const CLOSED: &str = "with a page that nobody looks at";
const OPEN: &str = "page open, metrics scraped every second";

pub(super) fn measure(runtime: &Runtime, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("the cost of a status page");
    let cluster = &Cluster::start(EngineKind::Builtin)?;
    let options = || {
        let config = Config::default().max_open(CONNECTIONS).rate(1e4, 10_000);
        options_builder(cluster, true, config, ACQUIRE_TIMEOUT)
    };
    let connect = |options: OptionsBuilder| {
        anyhow::Ok(runtime.block_on(Dsql::connect(options.build()?, cluster.clone()))?)
    };
    // First the one without: the page installs an exporter, which later pools use.
    let without = connect(options()?)?;
    let with = connect(options()?.pool("shown").status_page(([127, 0, 0, 1], 0).into()))?;
    let address = with.status_page().context("the page is not served")?;

    // Microseconds of processor time that this process spends on a request: acquire, SELECT 1, return.
    let busy = |pool: &Dsql| {
        let before = processor_time("self")?;
        let requests = runtime.block_on(crowd(runtime, &vec![pool.clone(); CALLERS], effort.turn))?;
        Ok((processor_time("self")? - before).as_secs_f64() * 1e6 / requests)
    };
    let lanes = vec![
        Lane::new(WITHOUT, || busy(&without)),
        Lane::new(CLOSED, || busy(&with)),
        Lane::new(OPEN, || {
            let _watcher = Watcher::start(address)?;
            busy(&with)
        }),
    ];
    let table =
        Table::new("processor time of the service for each request", "us", race(effort.rounds, lanes)?);
    let goal = "a page that is open and scraped every second: processor time for each request";
    report.at_most(goal, table.ratio(OPEN, WITHOUT)?, 1.01, "times");
    report.tables.push(table);

    // The same in an idle service: what is left is the page.
    let before = processor_time("self")?;
    clock::nap(effort.watched);
    let idle = processor_time("self")?.saturating_sub(before);
    let watcher = Watcher::start(address)?;
    let before = processor_time("self")?;
    clock::nap(effort.watched);
    let open = processor_time("self")?.saturating_sub(before);
    drop(watcher);
    let per_second = |spent: Duration| spent.as_secs_f64() * 1e3 / effort.watched.as_secs_f64();
    let rows = [(CLOSED, idle), (OPEN, open)].map(|(name, spent)| Figures::of(name, vec![per_second(spent)]));
    let rows = rows.into_iter().collect::<Result<_, _>>()?;
    report.table(
        format!("an idle service with {CONNECTIONS} connections"),
        "ms of processor time a second",
        rows,
    );
    report.note(
        "the status page: the browser is a process of its own, which reads /events and scrapes /metrics",
    );
    Ok(())
}

/// A process that has the page open. It ends with this.
struct Watcher(Child);

impl Watcher {
    fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let mut command = this_program("status-page-watch")?;
        let child = command.arg(address.to_string()).stdout(Stdio::null()).spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It has ended already, or ends now.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Has the page at `address` open, and scrapes its metrics every second, until it is killed.
pub(crate) fn watch(address: SocketAddr) -> anyhow::Result<()> {
    let request = move |path: &str, connection: &str| -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: {connection}\r\n\r\n")?;
        Ok(stream)
    };
    let mut events = request("/events", "keep-alive")?;
    thread::Builder::new().spawn(move || io::copy(&mut events, &mut io::sink()))?;
    loop {
        let mut text = String::new();
        request("/metrics", "close")?.read_to_string(&mut text)?;
        anyhow::ensure!(text.starts_with("HTTP/1.1 200"), "/metrics: {text}");
        clock::nap(Duration::from_secs(1));
    }
}
