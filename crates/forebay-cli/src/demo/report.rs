//! The demo as text: progress on stderr, the comparison at the end, and the same as JSON.

use std::io::{self, Write};
use std::time::Duration;

use forebay::Seed;
use forebay::rt::Runtime;
use forebay_sim::grouped;
use serde_json::{Map, Value, json};

use super::contest::{Contest, Frame, Phase};
use super::incident::{Incident, Period};
use super::scenario::{self, millis, seconds};
use super::side::{NAMES, Snapshot, settings};
use super::tally::Waits;
use crate::output::{WIDTH, wrap};
use crate::signals::{Ending, Requests};

/// How soon a request to end is noticed.
const TICK: Duration = Duration::from_millis(50);

/// Writes progress to stderr, once a second, until the contest is over or a signal ends it.
pub(super) async fn progress(
    contest: &Contest,
    url: &str,
    requests: &Requests,
    runtime: &dyn Runtime,
) -> Ending {
    // The text is lost if nobody reads it. The result is the same.
    let say = |text: &str| _ = io::stderr().write_all(text.as_bytes());
    say(&setup(url));
    let mut next = runtime.now() + Duration::from_secs(1);
    let mut told = None;
    loop {
        let frame = contest.frame();
        if frame.phase == Phase::Over {
            return Ending::Complete;
        }
        if let Some(ending) = requests.asked() {
            return ending;
        }
        let incident = frame.period().incident;
        if incident != told {
            told = incident;
            say(&incident.map(announcement).unwrap_or_default());
        }
        let now = runtime.now();
        if now >= next {
            next = now + Duration::from_secs(1);
            say(&tick(&frame));
        }
        runtime.sleep_until(now + TICK).await;
    }
}

/// The scenario, both sides' settings, and where the live page is.
fn setup(url: &str) -> String {
    let side = |side| {
        let words: Vec<_> =
            settings(side).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{}: {}", NAMES[side], words.join("; "))
    };
    wrap(&format!("{}\n{}\n{}\nlive page: {url}\n", scenario::line(), side(0), side(1)), WIDTH)
}

fn announcement(incident: Incident) -> String {
    format!("incident {}: {}\n", number_of(incident), incident.sentence())
}

/// Its number among the incidents, from one on.
pub(super) fn number_of(incident: Incident) -> usize {
    1 + Incident::ALL.iter().position(|one| *one == incident).unwrap_or(0)
}

/// How far the contest is.
fn tick(frame: &Frame) -> String {
    let [plain, fleet] = &frame.sides;
    if frame.phase == Phase::Filling {
        let (one, other) = (plain.sessions, fleet.sessions);
        return format!("filling: deadpool {one}, forebay {other} of {} open\n", scenario::CONNECTIONS);
    }
    let time = format!("{:>4} of {} s", frame.elapsed.as_secs(), frame.length.as_secs());
    let side = |time: &str, name: &str, side: &Snapshot| {
        let (failed, slow) = (grouped(side.figures.total.failed), grouped(side.figures.total.slow));
        let (max, opens) = (millis(side.figures.total.max), side.traffic.attempts);
        format!("{time} | {name}: {failed} failed, {slow} slow, max {max}, {opens} opens/s\n")
    };
    side(&time, "deadpool", plain) + &side(&" ".repeat(time.len()), "forebay", fleet)
}

/// A table of both sides by incident, what it means, and where to go next.
pub(super) fn comparison(seed: Seed, frame: &Frame) -> String {
    let [plain, fleet] = &frame.sides;
    let tenths =
        Duration::from_millis(100) * u32::try_from(frame.elapsed.as_millis() / 100).unwrap_or(u32::MAX);
    let (callers, length) = (grouped(fleet.figures.total.acquires), seconds(tenths));
    let mut text = format!("\n  {callers} callers to each side in {length}, seed {}\n\n", seed.number());
    text += &format!("  {:<22}{:>16}{:>19}{:>19}\n", "", "failed acquires", "p99 wait", "longest wait");
    let names = format!("{:>9}{:>9}", "deadpool", "forebay");
    text += &format!("  {:<22}{}\n", "", [&*names, &*names, &*names].join(" "));
    let mut row = |name: &str, [plain, fleet]: [&Waits; 2]| {
        let pair = |figure: fn(&Waits) -> String| format!("{:>9}{:>9}", figure(plain), figure(fleet));
        let cells = [
            pair(|waits| grouped(waits.failed)),
            pair(|waits| short_millis(waits.p99)),
            pair(|waits| short_millis(waits.max)),
        ];
        text += &format!("  {name:<22}{}\n", cells.join(" "));
    };
    for (period, Period { from, incident, .. }) in frame.periods().into_iter().enumerate() {
        if from <= frame.elapsed {
            let name = incident.map_or("quiet".to_owned(), |incident| {
                format!("{} {}", number_of(incident), incident.title())
            });
            row(&name, [&plain.figures.periods[period], &fleet.figures.periods[period]]);
        }
    }
    row("total", [&plain.figures.total, &fleet.figures.total]);
    text.push('\n');
    let mut counts = |name: &str, figure: fn(&Snapshot) -> u64, note: &str| {
        let (one, other) = (grouped(figure(plain)), grouped(figure(fleet)));
        text += &format!("  {name}: {} {one}, {} {other}{note}\n", NAMES[0], NAMES[1]);
    };
    let allowed = format!(" (limit {}, burst {})", scenario::OPENS_PER_SECOND, scenario::BURST);
    counts("most opens in a second", |side| side.traffic.peak_attempts, &allowed);
    counts("opens that were refused", |side| side.traffic.refused, "");
    counts("queries on a connection that was lost", |side| side.figures.total.failed_queries, "");
    if plain.figures.total.lost + fleet.figures.total.lost > 0 {
        counts("callers that ended with the killed instance", |side| side.figures.total.lost, "");
    }
    // This is not expected: it is only shown if it happened.
    if plain.figures.waiting + fleet.figures.waiting > 0 {
        counts("still waiting at the end", |side| side.figures.waiting as u64, "");
    }
    let late = plain.figures.latest_start.max(fleet.figures.latest_start);
    if late >= scenario::SLOW {
        let late = millis(late);
        text += &format!("\n  This machine is busy: it started callers up to {late} late, on both sides.\n");
    }
    let meaning = if frame.elapsed < frame.length {
        "It was ended early, so not every incident has been."
    } else {
        "What you saw: each incident takes connections from both sides. A plain pool opens new ones when callers ask for \
         them: the rush that follows finds too few, and the cluster refuses most attempts. The reservoirs have refilled by \
         then, at the rate that the cluster accepts. Under a steady load without rushes, a plain pool waits less after a loss \
         of all connections: it takes the cluster's whole burst, of which a fleet's budget keeps a part back."
    };
    let next = "Next: README.md shows the reservoir in a program of your own; docs/ is the manual.";
    text + "\n" + &wrap(&format!("{meaning}\n{next}\n"), WIDTH)
}

/// A wait in a narrow column.
fn short_millis(wait: Duration) -> String {
    millis(wait).replace(" ms", "ms")
}

/// One JSON object, and a line end.
pub(super) fn record(seed: Seed, frame: &Frame, ending: Ending) -> String {
    let waits = |waits: &Waits| {
        json!({
            "acquires": waits.acquires,
            "failed_acquires": waits.failed,
            "slow_acquires": waits.slow,
            "failed_queries": waits.failed_queries,
            "lost_callers": waits.lost,
            "p50_ms": number(waits.p50),
            "p99_ms": number(waits.p99),
            "max_ms": number(waits.max),
        })
    };
    let side = |side: usize| {
        let Snapshot { figures, traffic, .. } = &frame.sides[side];
        let settings: Map<_, _> =
            settings(side).into_iter().map(|(name, value)| (name.replace(' ', "_"), value.into())).collect();
        let mut record = waits(&figures.total);
        record["settings"] = Value::Object(settings);
        record["latest_start_ms"] = number(figures.latest_start).into();
        record["opens"] = traffic.opened.into();
        record["refused_opens"] = traffic.refused.into();
        record["peak_opens_per_second"] = traffic.peak_attempts.into();
        record
    };
    let periods = frame.periods().into_iter().enumerate().filter(|(_, period)| period.from <= frame.elapsed);
    let incidents: Vec<_> = periods
        .map(|(index, Period { from, to, incident })| {
            json!({
                "incident": incident.map_or("quiet", Incident::word),
                "from_seconds": from.as_secs_f64(),
                "to_seconds": to.min(frame.elapsed).as_secs_f64(),
                "deadpool": waits(&frame.sides[0].figures.periods[index]),
                "reservoir": waits(&frame.sides[1].figures.periods[index]),
            })
        })
        .collect();
    let record: Value = json!({
        "seed": seed.number(),
        "seconds": frame.length.as_secs(),
        "measured_seconds": frame.elapsed.as_secs_f64(),
        "ending": ending.word(),
        "cluster": {
            "opens_per_second": scenario::OPENS_PER_SECOND,
            "burst": scenario::BURST,
            "connections": scenario::CAP,
            "open_delay_ms": number(scenario::OPEN_DELAY),
            "session_seconds": scenario::SESSION_LIFE.as_secs_f64(),
        },
        "load": {
            "instances": scenario::INSTANCES,
            "connections_each": scenario::CONNECTIONS_EACH,
            "callers_per_second": scenario::CALLERS_PER_SECOND,
            "rush_callers_per_second": scenario::RUSH_CALLERS_PER_SECOND,
            "hold_ms": [number(scenario::HOLD.start), number(scenario::HOLD.end)],
        },
        "slow_over_ms": number(scenario::SLOW),
        "acquire_timeout_ms": number(scenario::ACQUIRE_TIMEOUT),
        "incidents": incidents,
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

    fn over() -> Frame {
        Frame { elapsed: Duration::from_secs(40), ..frame() }
    }

    fn text(frame: &Frame) -> String {
        comparison(Seed::new(42), frame)
    }

    #[test]
    fn the_table_reads_at_a_glance() {
        let text = text(&over());
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
        let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words("all sockets are cut"), "2 all sockets are cut 1,015 0 191ms 0.40ms 1,002ms 3.93ms");
        assert_eq!(words("total"), "total 1,015 0 191ms 0.40ms 1,002ms 3.93ms");
        assert_eq!(words("quiet"), "quiet 0 0 0.90ms 0.90ms 1.10ms 1.10ms");
        assert!(line("most opens").ends_with("205, forebay 26 (limit 25, burst 10)"), "{text}");
        assert_eq!(words("still waiting"), "still waiting at the end: deadpool 0.13 312, forebay 0");
        assert!(text.contains("What you saw") && text.contains("README.md"), "{text}");
        assert!(!text.contains("busy") && !text.contains("killed instance"), "{text}");
    }

    #[test]
    fn every_line_fits_into_80_columns() {
        let mut busy = over();
        busy.sides[0].figures.latest_start = Duration::from_millis(21);
        busy.sides[0].figures.total.lost = 12_345;
        let mut long = frame();
        (long.phase, long.length, long.elapsed) =
            (Phase::Running, Duration::from_secs(3600), Duration::from_secs(3599));
        long.sides[0].figures.total.max = Duration::from_millis(3_002);
        let mut texts =
            vec![text(&over()), text(&frame()), text(&busy), setup("http://127.0.0.1:9464/"), tick(&long)];
        texts.extend(Incident::ALL.map(announcement));
        for text in texts {
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn a_run_that_was_ended_shows_only_what_has_been() {
        let text = text(&frame());
        assert!(text.contains("in 20 s, seed 42") && text.contains("ended early"), "{text}");
        assert!(text.contains("all sockets are cut") && !text.contains("an instance killed"), "{text}");
    }

    #[test]
    fn a_busy_machine_is_reported() {
        let mut frame = over();
        frame.sides[0].figures.latest_start = Duration::from_millis(21);
        assert!(text(&frame).contains("up to 21.0 ms late"));
    }

    #[test]
    fn the_record_has_both_sides_and_every_incident() {
        let record = record(Seed::new(42), &over(), Ending::Complete);
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!((&record["seed"], &record["seconds"]), (&json!(42), &json!(40)));
        assert_eq!(record["ending"], "complete");
        assert_eq!(
            (&record["deadpool"]["failed_acquires"], &record["deadpool"]["p99_ms"]),
            (&json!(1015), &json!(191.0))
        );
        assert_eq!(record["reservoir"]["failed_acquires"], 0);
        assert_eq!(record["deadpool"]["settings"]["refused_open"], "again in 40 to 320 ms");
        let incidents = record["incidents"].as_array().unwrap();
        let names: Vec<_> = incidents.iter().map(|incident| &incident["incident"]).collect();
        assert_eq!(names, ["quiet", "expiry", "cut", "kill", "outage"]);
        assert_eq!(incidents[2]["deadpool"]["max_ms"], 1_002.495);
        assert_eq!(
            (&incidents[2]["from_seconds"], &incidents[2]["to_seconds"]),
            (&json!(13.0), &json!(22.0))
        );
    }

    #[test]
    fn each_setting_fits_into_half_of_80_columns() {
        for (name, value) in [settings(0), settings(1)].concat() {
            assert!(name.len() + 2 + value.len() <= 38, "{name}: {value}");
        }
    }
}
