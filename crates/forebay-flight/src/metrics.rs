//! All metrics of a pool: their names and values. Each has the label `endpoint`.

use ::metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use forebay::{Event, Observer, Status};
use parking_lot::Mutex;

/// How long callers waited for a connection, in milliseconds.
pub const ACQUIRE_WAIT: &str = "pool.acquire.wait_ms";
/// Callers that got no connection in time.
pub const ACQUIRE_TIMEOUT: &str = "pool.acquire.timeout";
/// Connections opened.
pub const CREATED: &str = "pool.conn.created";
/// Connections closed, for whatever reason.
pub const DROPPED: &str = "pool.conn.dropped";
/// Connections that callers hold.
pub const IN_USE: &str = "pool.conn.in_use";
/// Connections that are free.
pub const IDLE: &str = "pool.conn.idle";

/// Every metric and its meaning, in the order of the manual.
pub const ALL: &[(&str, &str)] = &[
    (ACQUIRE_WAIT, "How long callers waited for a connection, in milliseconds"),
    (ACQUIRE_TIMEOUT, "Callers that got no connection in time"),
    (CREATED, "Connections opened"),
    (DROPPED, "Connections closed, for whatever reason"),
    (IN_USE, "Connections that callers hold"),
    (IDLE, "Connections that are free"),
];

/// Keeps the metrics of one pool, through the `metrics` facade. Values follow within a second.
pub(crate) struct PoolMetrics {
    endpoint: String,
    handles: Mutex<Option<Handles>>,
}

struct Handles {
    wait: Histogram,
    timeout: Counter,
    created: Counter,
    dropped: Counter,
    in_use: Gauge,
    idle: Gauge,
    reported: Reported,
}

/// The values reported so far: counters take differences.
#[derive(Default)]
struct Reported {
    checkouts: u64,
    timeouts: u64,
    created: u64,
    dropped: u64,
    /// Checkouts that waited and were recorded one by one, and are not yet part of a report.
    waited: u64,
}

impl PoolMetrics {
    pub(crate) fn new(endpoint: String) -> Self {
        Self { endpoint, handles: Mutex::new(None) }
    }

    /// Registers with the first event, so that an exporter may be installed until the pool starts.
    fn register(&self) -> Handles {
        for (name, help) in ALL {
            match *name {
                ACQUIRE_WAIT => describe_histogram!(*name, Unit::Milliseconds, *help),
                IN_USE | IDLE => describe_gauge!(*name, *help),
                _ => describe_counter!(*name, *help),
            }
        }
        let endpoint = || self.endpoint.clone();
        Handles {
            wait: histogram!(ACQUIRE_WAIT, "endpoint" => endpoint()),
            timeout: counter!(ACQUIRE_TIMEOUT, "endpoint" => endpoint()),
            created: counter!(CREATED, "endpoint" => endpoint()),
            dropped: counter!(DROPPED, "endpoint" => endpoint()),
            in_use: gauge!(IN_USE, "endpoint" => endpoint()),
            idle: gauge!(IDLE, "endpoint" => endpoint()),
            reported: Reported::default(),
        }
    }
}

impl Handles {
    fn report(&mut self, status: &Status) {
        #[allow(clippy::cast_precision_loss, reason = "a million connections fit")]
        let number = |count: usize| count as f64;
        self.in_use.set(number(status.in_use));
        self.idle.set(number(status.ready));
        let (counts, reported) = (&status.counts, &mut self.reported);
        // Reports of two tasks may arrive in the wrong order. A counter never decreases.
        let grown = |reported: &mut u64, now: u64| {
            let more = now.saturating_sub(*reported);
            *reported += more;
            more
        };
        self.timeout.increment(grown(&mut reported.timeouts, counts.all_checkout_failures()));
        self.created.increment(grown(&mut reported.created, counts.refills));
        self.dropped.increment(grown(&mut reported.dropped, counts.all_discards() + counts.detached));
        let checkouts = grown(&mut reported.checkouts, counts.checkouts);
        // Checkouts that waited are recorded already. All others did not wait.
        let at_once = checkouts.saturating_sub(reported.waited);
        reported.waited = reported.waited.saturating_sub(checkouts);
        if at_once > 0 {
            self.wait.record_many(0.0, usize::try_from(at_once).unwrap_or(usize::MAX));
        }
    }
}

impl Observer for PoolMetrics {
    fn on(&self, event: &Event<'_>) {
        let mut handles = self.handles.lock();
        let handles = handles.get_or_insert_with(|| self.register());
        match event {
            Event::Report { status } => handles.report(status),
            Event::Waited { waited } => {
                handles.reported.waited += 1;
                handles.wait.record(waited.as_secs_f64() * 1e3);
            }
            _ => {}
        }
    }

    fn wants_reports(&self) -> bool {
        true
    }
}

/// The manual's table of metrics, in Markdown.
#[must_use]
pub fn manual() -> String {
    let rows = ALL.iter().map(|(name, help)| {
        let kind = match *name {
            ACQUIRE_WAIT => "histogram",
            IN_USE | IDLE => "gauge",
            _ => "counter",
        };
        format!("| `{name}` | {kind} | {help} |\n")
    });
    format!("| metric | kind | what it tells |\n|---|---|---|\n{}", rows.collect::<String>())
}
