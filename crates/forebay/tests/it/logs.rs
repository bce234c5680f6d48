//! Log lines: the documented messages and fields, at a limited rate.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use forebay::memory::{Answer, Memory};
use forebay::{Config, Failure, Logs, Reservoir};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::support::{World, config, millis, seconds};

/// Keeps each line as `LEVEL message field=value ...`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("forebay")
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
        let level: &Level = event.metadata().level();
        self.0.lock().unwrap().push(format!("{level} {}{}", line.message, line.fields));
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

impl Lines {
    fn with(&self, start: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.starts_with(start)).cloned().collect()
    }
}

fn run(config: Config, scenario: impl FnOnce(&World, &Reservoir<Memory>)) -> Lines {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let world = World::new();
        world.server.open_time(millis(10));
        let builder = Reservoir::builder(world.server.clone())
            .config(config)
            .runtime(world.time.clone())
            .leases(Arc::clone(&world.leases) as _)
            .observer(Logs::new());
        let reservoir = world.time.run(builder.start()).unwrap();
        scenario(&world, &reservoir);
        world.time.advance(seconds(2));
    });
    lines
}

#[test]
fn a_normal_start_reads_as_documented() {
    let lines = run(config(50).rate(100.0, 1), |_, _| ());
    assert_eq!(
        lines.with("INFO Reservoir refiller started"),
        ["INFO Reservoir refiller started target_ready=50 low_watermark=50 base_lifetime=\"11m0s\""]
    );
    let created = lines.with("INFO Reservoir refiller: created connection");
    assert_eq!(
        created[0],
        "INFO Reservoir refiller: created connection reservoir_size=1 target=50 took=\"10ms\""
    );
    assert_eq!(created[1], "INFO Reservoir refiller: created connection, and again repeated=49");
    assert_eq!(created.len(), 2, "{created:?}");
    assert_eq!(
        lines.with("INFO Reservoir initial fill complete"),
        ["INFO Reservoir initial fill complete size=50 target=50 elapsed=\"500ms\""]
    );
    assert_eq!(lines.with("WARN"), Vec::<String>::new());
    assert_eq!(lines.with("ERROR"), Vec::<String>::new());
}

#[test]
fn a_slow_start_warns_and_goes_on() {
    let lines = run(config(50).rate(1.0, 1).fill_timeout(millis(35_500)), |_, _| ());
    assert_eq!(
        lines.with("WARN Reservoir initial fill timeout"),
        ["WARN Reservoir initial fill timeout current=36 target=50 waited=\"35.5s\""]
    );
}

#[test]
fn a_discard_says_why_and_what_was_left() {
    let lines = run(config(1).overlap(0), |world, reservoir| {
        let guard = reservoir.try_checkout().unwrap();
        world.time.advance(guard.remaining().unwrap() - seconds(30));
        drop(guard);
        world.time.settle();
    });
    let discarded = lines.with("WARN Reservoir: discarding connection");
    assert_eq!(discarded.len(), 1, "{discarded:?}");
    assert!(discarded[0].contains("reason=\"insufficient_remaining_lifetime\""), "{discarded:?}");
    assert!(discarded[0].contains("remaining=\"30s\" guard_window=\"45s\""), "{discarded:?}");
}

#[test]
fn routine_retirements_are_at_debug() {
    let lines = run(config(20), |world, _| world.time.advance(seconds(1200)));
    assert!(lines.with("DEBUG Reservoir: discarding connection reason=\"retired\"").len() >= 20);
    assert!(lines.with("DEBUG Reservoir refiller: created connection").len() >= 20);
    assert_eq!(lines.with("WARN"), Vec::<String>::new());
}

#[test]
fn failures_are_told_by_what_failed() {
    for (failure, expected) in [
        (
            Failure::Open,
            "ERROR Reservoir refiller: connection open failed error=\"connection_open: told to fail\" attempt=1",
        ),
        (
            Failure::Token,
            "ERROR Reservoir refiller: token provider failed error=\"token_provider: told to fail\" attempt=1",
        ),
        (
            Failure::Lease,
            "ERROR Reservoir refiller: lease acquire failed error=\"lease_acquire: told to fail\" attempt=1",
        ),
        (
            Failure::RateLimit,
            "WARN Reservoir refiller: failed to create connection error=\"rate_limit: told to fail\" attempt=1",
        ),
    ] {
        let lines = run(config(1), |world, _| {
            world.server.on_prepare(Answer::Fail(failure));
            world.server.kill_all();
            world.time.advance(millis(100));
        });
        let level = expected.split(' ').next().unwrap();
        let written = lines.with(&format!("{level} Reservoir refiller"));
        assert!(written[0].starts_with(expected), "{written:?}");
        assert!(written[0].contains("retry_in="), "{written:?}");
    }
}

#[test]
fn callers_who_find_it_empty_are_counted_in_one_warning_a_second() {
    let lines = run(config(3).acquire_timeout(millis(100)), |world, reservoir| {
        world.server.on_open(Answer::Fail(Failure::Throttled));
        world.server.kill_all();
        world.time.settle();
        for _ in 0..5 {
            world.time.run(reservoir.checkout()).unwrap_err();
        }
        world.time.advance(seconds(5));
        world.time.run(reservoir.checkout()).unwrap_err();
    });
    let empty = lines.with("WARN Reservoir empty: callers found no connection ready");
    assert_eq!(empty.len(), 2, "{empty:?}");
    assert!(empty[0].contains(" callers=5 size=0 ") && empty[0].ends_with(" max_open=3"), "{empty:?}");
    assert!(empty[1].contains(" callers=1 size=0 "), "{empty:?}");
}

#[test]
fn waits_while_all_are_in_use_are_not_warnings() {
    let lines = run(config(1).acquire_timeout(millis(100)), |world, reservoir| {
        let _guard = reservoir.try_checkout().unwrap();
        world.time.run(reservoir.checkout()).unwrap_err();
        world.time.advance(seconds(2));
    });
    assert_eq!(lines.with("WARN"), Vec::<String>::new());
}

#[test]
fn a_delayed_start_says_how_long_and_why() {
    let lines = run(config(1).startup_jitter(seconds(5)), |_, _| ());
    let delayed = lines.with("INFO Reservoir refiller: start delayed");
    assert_eq!(delayed.len(), 1, "{delayed:?}");
    assert!(delayed[0].contains("so that a fleet does not connect all at once delay=\""), "{delayed:?}");
    assert_eq!(
        run(config(1), |_, _| ()).with("INFO Reservoir refiller: start delayed"),
        Vec::<String>::new()
    );
}

#[test]
fn a_storm_is_summed_up() {
    let lines = run(config(1000).unlimited_lifetime(), |world, _| {
        world.server.on_open(Answer::Fail(Failure::Throttled));
        world.server.kill_all();
        world.time.advance(seconds(2));
        world.server.on_open(Answer::Well);
        world.time.advance(seconds(400));
    });
    let died = lines.with("WARN Reservoir: discarding connection");
    assert_eq!(died.len(), 2, "{died:?}");
    assert!(died[0].contains("reason=\"died\""), "{died:?}");
    assert_eq!(died[1], "WARN Reservoir: discarding connection (died), and again repeated=999");
    let failed = lines.with("ERROR Reservoir refiller: connection open failed (throttled), and again");
    assert!(!failed.is_empty(), "the repetition names its failure");
    assert_eq!(lines.with("WARN Reservoir below low watermark").len(), 1);
    assert_eq!(lines.with("INFO Reservoir back above low watermark").len(), 1);
}
