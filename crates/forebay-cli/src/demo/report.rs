//! The demo as text: progress on stderr, the comparison at the end, and the same as JSON.

use std::io::{self, Write};
use std::time::Duration;

use forebay::Seed;
use forebay::rt::Runtime;
use forebay_sim::grouped;
use serde_json::{Map, Value, json};

use super::contender::{Contender, SIDES};
use super::contest::{Contest, Frame, Phase};
use super::incident::{Incident, Period};
use super::scenario::{self, millis, seconds};
use super::side::Snapshot;
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

/// The scenario, the settings of all sides, and where the live page is.
fn setup(url: &str) -> String {
    let side = |contender: Contender| {
        let words = contender.settings().into_iter().map(|(name, value)| format!("{name}: {value}"));
        format!("{}: {}\n", contender.name(), words.collect::<Vec<_>>().join("; "))
    };
    let sides: String = Contender::ALL.map(side).concat();
    wrap(&format!("{}\n{sides}live page: {url}\n", scenario::line()), WIDTH)
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
    let sides = || Contender::ALL.into_iter().zip(&frame.sides);
    if frame.phase == Phase::Filling {
        let open = sides().map(|(contender, side)| format!("{} {}", contender.short_name(), side.sessions));
        let open: Vec<_> = open.collect();
        return format!("filling: {} of {} open\n", open.join(", "), scenario::CONNECTIONS);
    }
    let mut time = format!("{:>4} of {} s", frame.elapsed.as_secs(), frame.length.as_secs());
    let mut text = String::new();
    for (contender, side) in sides() {
        let (failed, slow) = (grouped(side.figures.total.failed), grouped(side.figures.total.slow));
        let (name, max, opens) =
            (contender.short_name(), millis(side.figures.total.max), side.traffic.attempts);
        text += &format!("{time} | {name}: {failed} failed, {slow} slow, max {max}, {opens} opens/s\n");
        time = " ".repeat(time.len());
    }
    text
}

/// A table of all sides by incident, what it means, and where to go next.
pub(super) fn comparison(seed: Seed, frame: &Frame) -> String {
    let tenths =
        Duration::from_millis(100) * u32::try_from(frame.elapsed.as_millis() / 100).unwrap_or(u32::MAX);
    let callers = frame.sides.iter().map(|side| side.figures.total.acquires).max().unwrap_or(0);
    let (callers, length) = (grouped(callers), seconds(tenths));
    let mut text = format!("\n  {callers} callers to each side in {length}, seed {}\n\n", seed.number());
    let mut row = |[name, pool, failed, slow, p99, longest]: [&str; 6]| {
        text += &format!("  {name:<22}{pool:<10}{failed:>10}{slow:>10}{p99:>12}{longest:>14}\n");
    };
    row(["", "", "failed", "slow", "p99 wait", "longest wait"]);
    let mut rows = |name: &str, waits: &dyn Fn(&Snapshot) -> Waits| {
        let mut name = name;
        for (contender, side) in Contender::ALL.into_iter().zip(&frame.sides) {
            let waits = waits(side);
            let (failed, slow) = (grouped(waits.failed), grouped(waits.slow));
            row([name, contender.short_name(), &failed, &slow, &millis(waits.p99), &millis(waits.max)]);
            name = "";
        }
    };
    for (period, Period { from, incident, .. }) in frame.periods().into_iter().enumerate() {
        if from <= frame.elapsed {
            let name = incident.map_or("quiet".to_owned(), |incident| {
                format!("{} {}", number_of(incident), incident.title())
            });
            rows(&name, &|side| side.figures.periods[period]);
        }
    }
    rows("total", &|side| side.figures.total);
    text.push('\n');
    text += &counts(frame);
    let meaning = if frame.is_too_busy() {
        let late = |side: &Snapshot| (side.figures.late_starts, side.figures.latest_start);
        let (count, latest) = frame.sides.iter().map(late).max().unwrap_or_default();
        format!(
            "This machine was too busy for a comparison: it started {} callers of one side more than {} late, up to {}. Their waits \
             say more about the machine than about the pools. Run it again, with --release and while nothing else runs.",
            grouped(count),
            millis(scenario::SLOW),
            millis(latest),
        )
    } else if frame.elapsed < frame.length {
        "It was ended early, so not every incident has been.".to_owned()
    } else {
        "What you saw: each incident takes connections from all sides. A plain pool opens new ones when callers ask for \
         them: the rush that follows finds too few, and the cluster refuses most attempts. The reservoirs have refilled by \
         then, at the rate that the cluster accepts."
            .to_owned()
    };
    let more = if cfg!(feature = "sqlx") {
        ""
    } else {
        "With sqlx's pool, which refills: cargo run --release --features sqlx -- demo\n"
    };
    let next = "Next: README.md shows the reservoir in a program of your own; docs/ is the manual.";
    text + "\n" + &wrap(&format!("{meaning}\n{more}{next}\n"), WIDTH)
}

/// What was counted in the whole run: a column for each side.
fn counts(frame: &Frame) -> String {
    let line = |name: &str, cells: [String; SIDES]| {
        let cells: String = cells.map(|cell| format!("{cell:>11}")).concat();
        format!("  {name:<44}{cells}\n")
    };
    let count = |name: &str, figure: fn(&Snapshot) -> u64| {
        line(name, frame.sides.each_ref().map(|side| grouped(figure(side))))
    };
    let mut text = line("", Contender::ALL.map(|contender| contender.short_name().to_owned()));
    let (limit, burst) = (scenario::OPENS_PER_SECOND, scenario::BURST);
    let most = format!("most opens in a second (limit {limit}, burst {burst})");
    text += &count(&most, |side| side.traffic.peak_attempts);
    text += &count("opens that were refused", |side| side.traffic.refused);
    text += &count("queries on a connection that was lost", |side| side.figures.total.failed_queries);
    // These are only shown if they happened.
    let any = |figure: fn(&Snapshot) -> u64| frame.sides.iter().any(|side| figure(side) > 0);
    for (name, figure) in [
        (
            "callers that ended with the killed instance",
            (|side| side.figures.total.lost) as fn(&Snapshot) -> u64,
        ),
        ("callers still waiting at the end", |side| side.figures.waiting as u64),
        ("callers that this machine started late", |side| side.figures.late_starts),
    ] {
        if any(figure) {
            text += &count(name, figure);
        }
    }
    text
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
    let side = |contender: Contender, Snapshot { figures, traffic, .. }: &Snapshot| {
        let settings = contender.settings().into_iter();
        let settings: Map<_, _> =
            settings.map(|(name, value)| (name.replace(' ', "_"), value.into())).collect();
        let mut record = waits(&figures.total);
        record["settings"] = Value::Object(settings);
        record["latest_start_ms"] = number(figures.latest_start).into();
        record["late_starts"] = figures.late_starts.into();
        record["opens"] = traffic.opened.into();
        record["refused_opens"] = traffic.refused.into();
        record["peak_opens_per_second"] = traffic.peak_attempts.into();
        record
    };
    let periods = frame.periods().into_iter().enumerate().filter(|(_, period)| period.from <= frame.elapsed);
    let incidents: Vec<_> = periods
        .map(|(index, Period { from, to, incident })| {
            let mut record = json!({
                "incident": incident.map_or("quiet", Incident::word),
                "from_seconds": from.as_secs_f64(),
                "to_seconds": to.min(frame.elapsed).as_secs_f64(),
            });
            for (contender, side) in Contender::ALL.into_iter().zip(&frame.sides) {
                record[contender.word()] = waits(&side.figures.periods[index]);
            }
            record
        })
        .collect();
    let mut record: Value = json!({
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
        "machine_too_busy": frame.is_too_busy(),
        "incidents": incidents,
    });
    for (contender, snapshot) in Contender::ALL.into_iter().zip(&frame.sides) {
        record[contender.word()] = side(contender, snapshot);
    }
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
        // From the line with this name on, up to that of the last side.
        let rows = |name: &str| {
            let rows = text.lines().skip_while(|line| !line.contains(name)).take(SIDES);
            rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let cut = rows("all sockets are cut");
        assert_eq!(cut[0], "2 all sockets are cut deadpool 1,015 1,015 191 ms 1,002 ms");
        assert_eq!(cut[SIDES - 1], "forebay 0 0 0.40 ms 3.93 ms");
        assert_eq!(rows("total")[0], "total deadpool 1,015 1,015 191 ms 1,002 ms");
        assert_eq!(rows("quiet")[0], "quiet deadpool 0 0 0.90 ms 1.10 ms");
        let ends = |name: &str| {
            (rows(name)[0].contains(" 205 ") || rows(name)[0].contains(" 312 "), rows(name)[0].clone())
        };
        assert!(ends("most opens in a second (limit 25, burst 10)").1.ends_with(" 26"), "{text}");
        assert!(ends("still waiting").0 && ends("still waiting").1.ends_with(" 0"), "{text}");
        assert!(text.contains("What you saw") && text.contains("README.md"), "{text}");
        assert!(!text.contains("busy") && !text.contains("killed instance"), "{text}");
    }

    #[test]
    fn every_line_fits_into_80_columns() {
        let mut busy = over();
        busy.sides[0].figures.latest_start = Duration::from_millis(21);
        busy.sides[0].figures.late_starts = 1_234;
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
    fn on_a_busy_machine_there_is_no_comparison() {
        let mut frame = over();
        let last = frame.sides.last_mut().unwrap();
        (last.figures.late_starts, last.figures.latest_start) = (93, Duration::from_millis(21));
        assert!(!text(&frame).contains("too busy"), "one in a hundred");
        assert!(text(&frame).contains("callers that this machine started late"));
        frame.sides.last_mut().unwrap().figures.late_starts = 94;
        let shown = text(&frame).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("started 94 callers of one side more than 5.00 ms late, up to 21.0 ms"),
            "{shown}"
        );
        assert!(!shown.contains("What you saw"), "{shown}");
        let record: Value = serde_json::from_str(&record(Seed::new(42), &frame, Ending::Complete)).unwrap();
        assert_eq!(
            (&record["machine_too_busy"], &record["reservoir"]["late_starts"]),
            (&json!(true), &json!(94))
        );
    }

    #[test]
    fn the_record_has_all_sides_and_every_incident() {
        let record = record(Seed::new(42), &over(), Ending::Complete);
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!((&record["seed"], &record["seconds"]), (&json!(42), &json!(40)));
        assert_eq!((&record["ending"], &record["machine_too_busy"]), (&json!("complete"), &json!(false)));
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
        for (name, value) in Contender::ALL.map(Contender::settings).concat() {
            assert!(name.len() + 2 + value.len() <= 38, "{name}: {value}");
        }
    }
}
