//! Every open and close of standard mode over two lifetimes, compared with a recording.
//!
//! The recording was made with the pool that standard mode had before it became a configuration of the reservoir. Times
//! count from the end of the warm-up and are rounded up to the keeper's next tick, one second: at which moment before the
//! tick a dead or expired connection is closed is not part of the contract, and neither is the order within a tick.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use forebay::memory::{Answer, Memory, MemoryConnection};
use forebay::rt::{Runtime, VirtualTime};
use forebay::{BoxError, Connect, ConnectionMonitor, Failure, Instant, OpenError};
use forebay_dsql::{Builder, DsqlPool, Options};
use parking_lot::Mutex;

use super::world::{config, poll, seconds};

const RECORDING: &str = include_str!("standard_trace.txt");

fn minutes(minutes: u64) -> Duration {
    seconds(60 * minutes)
}

/// A connector that notes what is opened and closed.
#[derive(Clone)]
struct Recorder {
    server: Memory,
    time: VirtualTime,
    events: Arc<Mutex<Vec<(Instant, Noted)>>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Noted {
    Closed(u64),
    Failed,
    Opened(u64),
    /// Something that the test does.
    Step(&'static str),
}

impl Recorder {
    fn new() -> Self {
        let time = VirtualTime::new();
        Self { server: Memory::new(time.clone()), time, events: Arc::default() }
    }

    fn note(&self, at: Instant, noted: Noted) {
        self.events.lock().push((at, noted));
    }

    fn step(&self, step: &'static str) {
        self.note(self.time.now(), Noted::Step(step));
    }

    /// One line for each tick in which something happened.
    fn text(&self, warm_at: Instant) -> String {
        let mut text = String::new();
        let mut ticks: BTreeMap<u64, BTreeSet<(Noted, usize)>> = BTreeMap::new();
        for (number, (at, noted)) in self.events.lock().iter().enumerate() {
            // Of equal events only failures can occur twice.
            let event = (noted.clone(), if *noted == Noted::Failed { number } else { 0 });
            if *at < warm_at {
                let before = warm_at.since(*at).as_millis();
                writeln!(text, "{:>8} {}", format!("-{before}ms"), show(&[event.0])).unwrap();
            } else {
                let tick = at.since(warm_at).as_nanos().div_ceil(1_000_000_000);
                ticks.entry(u64::try_from(tick).unwrap()).or_default().insert(event);
            }
        }
        for (tick, events) in ticks {
            let events: Vec<Noted> = events.into_iter().map(|(noted, _)| noted).collect();
            let (steps, events): (Vec<_>, Vec<_>) =
                events.into_iter().partition(|noted| matches!(noted, Noted::Step(_)));
            let clock = format!("{}:{:02}:{:02}", tick / 3600, tick / 60 % 60, tick % 60);
            for step in steps {
                writeln!(text, "{clock:>8} -- {}", show(&[step])).unwrap();
            }
            if !events.is_empty() {
                writeln!(text, "{clock:>8} {}", show(&events)).unwrap();
            }
        }
        text
    }
}

fn show(events: &[Noted]) -> String {
    let shown = events.iter().map(|noted| match noted {
        Noted::Closed(id) => format!("close #{id}"),
        Noted::Failed => "open failed".to_owned(),
        Noted::Opened(id) => format!("open #{id}"),
        Noted::Step(step) => (*step).to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

impl Connect for Recorder {
    type Connection = MemoryConnection;

    async fn open(&self, monitor: ConnectionMonitor) -> Result<MemoryConnection, OpenError> {
        let began = self.time.now();
        let opened = self.server.open(monitor).await;
        self.note(began, opened.as_ref().map_or(Noted::Failed, |connection| Noted::Opened(connection.id())));
        opened
    }

    fn is_usable(&self, connection: &MemoryConnection) -> bool {
        self.server.is_usable(connection)
    }

    fn is_clean(&self, connection: &MemoryConnection) -> bool {
        self.server.is_clean(connection)
    }

    async fn reset(&self, connection: &mut MemoryConnection) -> Result<(), BoxError> {
        self.server.reset(connection).await
    }

    async fn check(&self, connection: &mut MemoryConnection) -> Result<(), BoxError> {
        self.server.check(connection).await
    }

    async fn close(&self, connection: MemoryConnection) {
        self.note(self.time.now(), Noted::Closed(connection.id()));
        self.server.close(connection).await;
    }
}

/// A pool of six, the recorder it opens through, and when the pool was warm.
fn warm_pool() -> (Recorder, DsqlPool<Recorder>, Instant) {
    let recorder = Recorder::new();
    let (server, time) = (recorder.server.clone(), recorder.time.clone());
    server.open_time(Duration::from_millis(50));
    server.on_open(Answer::Fail(Failure::Open));
    // Of the warm-up, the first attempts fail, and the first ping after that.
    let heals_at = time.now() + seconds(7);
    recorder.time.spawn(Box::pin(async move {
        time.sleep_until(heals_at).await;
        server.on_check(Answer::Fail(Failure::Open));
        server.on_open(Answer::Well);
        time.sleep_until(heals_at + seconds(3)).await;
        server.on_check(Answer::Well);
    }));
    let config = config(6).startup_jitter(seconds(5));
    let options =
        Options::builder("abc.dsql.us-east-1.on.aws").config(config).reservoir(false).build().unwrap();
    let builder = Builder::over(recorder.clone(), options).runtime(recorder.time.clone());
    let pool = recorder.time.run(builder.connect()).unwrap();
    let warm_at = recorder.time.now();
    (recorder, pool, warm_at)
}

#[test]
fn opens_and_closes_are_those_of_the_recording() {
    let (recorder, pool, warm_at) = warm_pool();
    let (server, time) = (&recorder.server, &recorder.time);
    // Between two ticks of the keeper.
    let at = |since_warm: Duration| {
        time.advance((warm_at + since_warm + Duration::from_millis(400)).since(time.now()));
    };
    let borrow_all = || -> Vec<_> { (0..6).map(|_| time.run(pool.acquire()).unwrap()).collect() };

    let (second, millis) = (seconds(1), Duration::from_millis);

    at(minutes(10));
    recorder.step("the two oldest die");
    let mut ids: Vec<u64> = borrow_all().iter().map(|lent| (**lent).id()).collect();
    ids.sort_unstable();
    server.kill(ids[0]);
    server.kill(ids[1]);

    at(minutes(20));
    recorder.step("all die, and opens fail for five seconds");
    server.on_open(Answer::Fail(Failure::Open));
    server.kill_all();
    at(minutes(20) + 5 * second);
    server.on_open(Answer::Well);

    at(minutes(30));
    recorder.step("all die, and three callers come");
    server.kill_all();
    let mut callers: Vec<_> = (0..3).map(|_| Box::pin(pool.acquire())).collect();
    assert!(callers.iter_mut().all(|caller| poll(caller).is_pending()));
    time.advance(millis(100));
    let held: Vec<_> = callers.into_iter().map(|caller| time.run(caller).unwrap()).collect();
    at(minutes(30) + 2 * second);
    drop(held);

    at(minutes(40));
    recorder.step("all are in use for a while");
    let held = borrow_all();
    at(minutes(41));
    drop(held);

    at(minutes(84));
    recorder.step("all are in use past their end");
    let held = borrow_all();
    at(minutes(95));
    recorder.step("they come back");
    drop(held);

    at(minutes(149));
    recorder.step("nobody came since; opens fail for three seconds at the second end");
    server.on_open(Answer::Fail(Failure::Throttled));
    at(minutes(150) + 3 * second);
    server.on_open(Answer::Well);

    at(minutes(160));
    recorder.step("drain");
    assert!(time.run(pool.drain(minutes(1))).is_complete());

    let text = recorder.text(warm_at);
    assert_eq!(text, RECORDING, "the trace is:\n{text}");
}
