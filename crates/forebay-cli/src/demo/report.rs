//! The demo as text: progress on stderr, the comparison at the end, and the same as JSON.

use std::io::{self, Write};
use std::time::Duration;

use forebay::Seed;
use forebay::rt::Runtime;
use forebay_sim::grouped;
use serde_json::{Map, Value, json};

use super::contest::{Contest, Frame, Phase};
use super::scenario::{self, millis, seconds};
use super::side::{Figures, NAMES, settings};
use crate::output::{WIDTH, wrap};
use crate::signals::{Ending, Requests};

/// How soon a request to end is noticed.
const TICK: Duration = Duration::from_millis(50);

/// Writes progress to stderr, once a second, until the contest is over or a signal ends it.
pub(super) async fn progress(contest: &Contest, requests: &Requests, runtime: &dyn Runtime) -> Ending {
    // The text is lost if nobody reads it. The result is the same.
    let say = |text: &str| _ = io::stderr().write_all(text.as_bytes());
    say(&setup());
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
            say(&tick(&frame));
        }
        runtime.sleep_until(now + TICK).await;
    }
}

/// The scenario and both sides' settings.
fn setup() -> String {
    let side = |side| {
        let words: Vec<_> =
            settings(side).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{}: {}", NAMES[side], words.join("; "))
    };
    wrap(&format!("{}\n{}\n{}\n", scenario::line(), side(0), side(1)), WIDTH)
}

/// How far the contest is.
fn tick(frame: &Frame) -> String {
    let [deadpool, reservoir] = &frame.sides;
    if frame.phase == Phase::Filling {
        let (one, other) = (deadpool.ready, reservoir.ready);
        return format!("filling: deadpool {one}, forebay {other} of {} open\n", scenario::CONNECTIONS);
    }
    let time = format!("{:>4} of {} s", frame.elapsed.as_secs(), frame.length.as_secs());
    let side = |time: &str, name: &str, figures: &Figures| {
        let (failed, slow) = (grouped(figures.failed), grouped(figures.slow));
        let (p99, opens) = (millis(figures.p99), figures.traffic.attempts);
        format!("{time} | {name}: {failed} failed, {slow} slow, p99 {p99}, {opens} opens/s\n")
    };
    side(&time, "deadpool", deadpool) + &side(&" ".repeat(time.len()), "forebay", reservoir)
}

/// A table of both sides, what it means, and where to go next.
pub(super) fn comparison(seed: Seed, frame: &Frame) -> String {
    let [deadpool, reservoir] = &frame.sides;
    let tenths =
        Duration::from_millis(100) * u32::try_from(frame.elapsed.as_millis() / 100).unwrap_or(u32::MAX);
    let (callers, length) = (grouped(reservoir.acquires), seconds(tenths));
    let mut text = format!("\n  {callers} callers to each side in {length}, seed {}\n\n", seed.number());
    let mut line = |name: &str, one: &str, other: &str, note: &str| {
        text += format!("  {name:<26}{one:>15}{other:>13}   {note}").trim_end();
        text.push('\n');
    };
    line("", NAMES[0], NAMES[1], "");
    let mut row = |name: &str, figure: fn(&Figures) -> String, note: &str| {
        line(name, &figure(deadpool), &figure(reservoir), note);
    };
    let allowed = format!("limit {}, burst {}", scenario::OPENS_PER_SECOND, scenario::BURST);
    row("failed acquires", |side| grouped(side.failed), "");
    row(&format!("slow acquires, over {} ms", scenario::SLOW.as_millis()), |side| grouped(side.slow), "");
    row("acquire p50", |side| millis(side.p50), "");
    row("acquire p99", |side| millis(side.p99), "");
    row("acquire max", |side| millis(side.max), "");
    row("peak opens in a second", |side| grouped(side.traffic.peak_attempts as u64), &allowed);
    row("refused opens", |side| grouped(side.traffic.refused), "");
    // These two are not expected: they are only shown if they happened.
    if deadpool.failed_queries + reservoir.failed_queries > 0 {
        row("failed queries", |side| grouped(side.failed_queries), "");
    }
    if deadpool.waiting + reservoir.waiting > 0 {
        row("still waiting at the end", |side| grouped(side.waiting as u64), "");
    }
    let late = deadpool.latest_start.max(reservoir.latest_start);
    if late >= scenario::SLOW {
        let late = millis(late);
        text += &format!("\n  This machine is busy: it started callers up to {late} late, on both sides.\n");
    }
    let second_rush = scenario::FIRST_RUSH + scenario::RUSH_EVERY;
    let meaning = if frame.elapsed < second_rush + scenario::RUSH_LASTS {
        format!(
            "This run was too short to compare them: sessions end after {}, and the rush at {} is the first after \
             that. Let it run for 30 s.",
            seconds(scenario::SESSION_LIFE),
            seconds(second_rush),
        )
    } else {
        "What you saw: sessions end, and a pool opens new ones only when a rush needs them; the reservoir had them \
         open."
            .to_owned()
    };
    let next = "Next: README.md shows the reservoir in a program of your own; docs/ is the manual.";
    text + "\n" + &wrap(&format!("{meaning}\n{next}\n"), WIDTH)
}

/// One JSON object, and a line end.
pub(super) fn record(seed: Seed, frame: &Frame, ending: Ending) -> String {
    let side = |side: usize| {
        let figures = &frame.sides[side];
        let settings: Map<_, _> =
            settings(side).into_iter().map(|(name, value)| (name.replace(' ', "_"), value.into())).collect();
        json!({
            "settings": settings,
            "acquires": figures.acquires,
            "failed_acquires": figures.failed,
            "slow_acquires": figures.slow,
            "failed_queries": figures.failed_queries,
            "p50_ms": number(figures.p50),
            "p99_ms": number(figures.p99),
            "max_ms": number(figures.max),
            "latest_start_ms": number(figures.latest_start),
            "opens": figures.traffic.opened,
            "peak_opens_per_second": figures.traffic.peak_attempts,
            "refused_opens": figures.traffic.refused,
        })
    };
    let record: Value = json!({
        "seed": seed.number(),
        "seconds": frame.length.as_secs(),
        "measured_seconds": frame.elapsed.as_secs_f64(),
        "ending": ending.word(),
        "server": {
            "opens_per_second": scenario::OPENS_PER_SECOND,
            "burst": scenario::BURST,
            "open_ms": [number(scenario::OPEN_TIME.start), number(scenario::OPEN_TIME.end)],
            "session_seconds": scenario::SESSION_LIFE.as_secs_f64(),
        },
        "load": {
            "callers_per_second": scenario::CALLERS_PER_SECOND,
            "rush_callers_per_second": scenario::RUSH_CALLERS_PER_SECOND,
            "rush_first_seconds": scenario::FIRST_RUSH.as_secs_f64(),
            "rush_every_seconds": scenario::RUSH_EVERY.as_secs_f64(),
            "rush_lasts_seconds": scenario::RUSH_LASTS.as_secs_f64(),
        },
        "slow_over_ms": number(scenario::SLOW),
        "acquire_timeout_ms": number(scenario::ACQUIRE_TIMEOUT),
        "deadpool": side(0),
        "reservoir": side(1),
    });
    format!("{record:#}\n")
}

/// Milliseconds, to a microsecond.
fn number(length: Duration) -> f64 {
    (length.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::frame;

    fn text(frame: &Frame) -> String {
        comparison(Seed::new(42), frame)
    }

    #[test]
    fn the_table_reads_at_a_glance() {
        let text = text(&frame());
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
        let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(line("deadpool").ends_with("forebay"), "{text}");
        assert_eq!(words("failed acquires"), "failed acquires 1,015 0");
        assert!(line("p99").contains("191 ms") && line("p99").contains("0.40 ms"), "{text}");
        assert!(line("peak opens").ends_with("limit 25, burst 10"), "{text}");
        assert_eq!(words("still waiting"), "still waiting at the end 312 0");
        assert!(text.contains("What you saw") && text.contains("README.md"), "{text}");
        assert!(!text.contains("busy") && !text.contains("failed queries"), "{text}");
    }

    #[test]
    fn every_line_fits_into_80_columns() {
        let mut short = frame();
        short.elapsed = Duration::from_secs(2);
        short.sides[0].latest_start = Duration::from_millis(21);
        let mut long = frame();
        (long.phase, long.length, long.elapsed) =
            (Phase::Running, Duration::from_secs(3600), Duration::from_secs(3599));
        long.sides[0].p99 = Duration::from_millis(1_002);
        for text in [text(&frame()), text(&short), setup(), tick(&long)] {
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn a_short_run_says_that_it_was() {
        let mut frame = frame();
        frame.elapsed = Duration::from_millis(2_049);
        let text = text(&frame);
        assert!(text.contains("in 2 s, seed 42") && text.contains("too short to compare"), "{text}");
    }

    #[test]
    fn a_busy_machine_is_reported() {
        let mut frame = frame();
        frame.sides[0].latest_start = Duration::from_millis(21);
        assert!(text(&frame).contains("up to 21.0 ms late"));
    }

    #[test]
    fn the_record_has_both_sides() {
        let record = record(Seed::new(42), &frame(), Ending::Complete);
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!((&record["seed"], &record["seconds"]), (&json!(42), &json!(30)));
        assert_eq!(record["ending"], "complete");
        assert_eq!(
            (&record["deadpool"]["failed_acquires"], &record["deadpool"]["p99_ms"]),
            (&json!(1015), &json!(191.0))
        );
        assert_eq!(record["reservoir"]["failed_acquires"], 0);
        assert_eq!(record["deadpool"]["settings"]["refused_open"], "again in 40 to 320 ms");
    }
}
