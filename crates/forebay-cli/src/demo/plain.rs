//! Progress as plain lines on stderr, one a second.

use std::io::{self, Write};
use std::time::Duration;

use forebay::rt::{Runtime, TokioRuntime};

use super::Run;
use super::contest::{Contest, Frame, Phase};
use super::pooled::{self, Pooled};
use super::reserved::{self, Reserved};
use super::side::Figures;
use super::wording::{count, millis};
use crate::ending::{Ending, Requests};

/// How soon a request to end is heard.
const TICK: Duration = Duration::from_millis(50);

/// Tells how the contest goes until it is over or someone asks to end it.
pub(super) async fn report(
    contest: &Contest,
    run: Run,
    requests: &Requests,
    runtime: &TokioRuntime,
) -> Ending {
    say(&scene(&run));
    let mut next = runtime.now() + Duration::from_secs(1);
    loop {
        let frame = contest.frame();
        if frame.phase == Phase::Over {
            return Ending::Complete;
        }
        if let Some(ending) = requests.asked() {
            return ending;
        }
        let now = runtime.now();
        if now >= next {
            next = now + Duration::from_secs(1);
            say(&line(&frame, &run));
        }
        runtime.sleep_until(now + TICK).await;
    }
}

/// Writes a line to stderr. If nobody reads it, nobody misses it.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn scene(run: &Run) -> String {
    let scenario = &run.scenario;
    format!(
        "{}\n{}: {}\n{}: {}",
        scenario.line(),
        pooled::NAME,
        Pooled::settings(scenario).line(),
        reserved::NAME,
        Reserved::settings(scenario).line()
    )
}

fn line(frame: &Frame, run: &Run) -> String {
    let Frame { phase, elapsed, pooled, reserved } = frame;
    match phase {
        Phase::Filling => format!(
            "filling: {} {}, {} {} of {} open",
            pooled::NAME,
            pooled.ready,
            reserved::NAME,
            reserved.ready,
            run.scenario.connections
        ),
        _ => format!(
            "{:>4} of {} s | {} | {}",
            elapsed.as_secs(),
            run.length.as_secs(),
            side(pooled::NAME, pooled),
            side(reserved::NAME, reserved)
        ),
    }
}

fn side(name: &str, figures: &Figures) -> String {
    let Figures { callers, waits, traffic, .. } = figures;
    format!(
        "{name}: {} failed, {} slow, p99 {}, {} opens/s",
        count(callers.failed),
        count(callers.slow),
        millis(waits.p99),
        traffic.attempts
    )
}
