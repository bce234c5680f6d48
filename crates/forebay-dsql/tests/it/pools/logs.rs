//! What an operator reads when a pool starts and when it cannot: the documented words and fields, and no flood.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use forebay::Failure;
use forebay::memory::Answer;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use super::world::{World, config, seconds};

/// Keeps each line as `LEVEL message field=value ...`.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["forebay", "sqlx"].iter().any(|of| metadata.target().starts_with(of))
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(format!("{} {}{}", event.metadata().level(), line.message, line.fields));
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => write!(self.fields, " {name}={value:?}").unwrap(),
        }
    }
}

fn lines_of(story: impl FnOnce(&World)) -> Vec<String> {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || story(&World::new()));
    lines.all()
}

#[test]
fn a_start_in_standard_mode_reads_as_documented() {
    let lines = lines_of(|world| {
        let _pool = world.standard(config(3));
        world.time.advance(seconds(3));
    });
    assert_eq!(
        lines,
        [
            "INFO DSQL pool in standard mode: a plain pool, which replaces connections after they have ended. \
             DSQL_RESERVOIR_ENABLED=true, or reservoir(true) in code, replaces them before pool=\"default\" \
             max_conns=3",
            "INFO DSQL connection pool configured max_open_conns=3 current_open=0 max_conn_lifetime=55m0s \
             max_conn_idle_time=\"0s\"",
            "INFO Starting DSQL pool warmup current_connections=0 target_connections=3 connections_to_create=3",
            "INFO DSQL pool warmup complete connections_created=3 connections_failed=0 final_open_connections=3",
            "INFO DSQL pool keeper started target_pool_size=3 tick_interval=1s max_conns_per_tick=1",
        ]
    );
}

#[test]
fn a_start_in_reservoir_mode_says_so() {
    let lines = lines_of(|world| {
        drop(world.time.run(world.builder(config(3), true, None).connect()).unwrap());
    });
    assert_eq!(lines[1], "INFO Reservoir mode enabled, registering reservoir driver");
    assert!(lines.iter().any(|line| line.starts_with("INFO Reservoir initial fill complete")), "{lines:#?}");
}

/// Once for each pool, with what to set for the other mode, and for longer lives if they are short.
#[test]
fn a_start_says_which_mode_runs_and_what_to_set() {
    let told = |config: forebay_dsql::Config, reservoir| {
        let lines = lines_of(|world| {
            drop(world.time.run(world.builder(config, reservoir, None).connect()).unwrap());
        });
        let mut modes = lines.into_iter().filter(|line| line.starts_with("INFO DSQL pool in "));
        let told = modes.next().unwrap();
        assert_eq!(modes.next(), None);
        told
    };
    let minutes = |minutes: u64| config(3).lifetime(forebay_dsql::Lifetime::new(seconds(60 * minutes)));
    assert!(told(minutes(11), false).contains("standard mode: a plain pool"));
    let short = told(minutes(11), true);
    assert!(
        short.contains("reservoir mode") && short.contains("DSQL_RESERVOIR_BASE_LIFETIME=55m"),
        "{short}"
    );
    let long = told(minutes(55), true);
    assert!(long.contains("reservoir mode") && !long.contains("LIFETIME"), "{long}");
}

#[test]
fn a_long_outage_is_no_flood() {
    let lines = lines_of(|world| {
        let _pool = world.standard(config(3));
        world.server.kill_all();
        world.server.on_open(Answer::Fail(Failure::Open));
        world.time.advance(seconds(1_000));
    });
    let warnings = lines.iter().filter(|line| line.starts_with("WARN")).count();
    assert!((5..=11).contains(&warnings), "{warnings} in a thousand seconds");
}
