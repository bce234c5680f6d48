//! The plan as text.

use std::fmt::Write;
use std::path::Path;

use forebay_fleet::{LeaseMode, RateMode};
use forebay_sim::grouped;

use super::Planned;
use super::check::{Checked, Row, RowVerdict, Unit};
use super::cost::{Cost, PRICES_OF, Prices, READ_PRICE, WRITE_PRICE};
use super::fleet::Fleet;
use super::number::{about, exact, plural, rate, round, seconds};
use super::prediction::{Fit, Prediction};
use super::turnover::Turnover;
use crate::output;

/// The width of the labels.
const LABEL: usize = 22;

/// A text of labelled lines, no wider than the page.
struct Page(String);

impl Page {
    fn title(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0 += title;
        self.0.push('\n');
    }

    /// A label and a text, which is broken between words if it is too wide.
    fn line(&mut self, label: &str, text: &str) {
        for (number, line) in output::wrap(text, output::WIDTH - LABEL - 3).lines().enumerate() {
            let label = if number == 0 { label } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(self.0, "  {label:<LABEL$} {line}");
        }
    }

    /// A text without a label.
    fn text(&mut self, mark: &str, text: &str) {
        for (number, line) in output::wrap(text, output::WIDTH - 4).lines().enumerate() {
            let mark = if number == 0 || mark.is_empty() { mark } else { " " };
            let space = if mark.is_empty() { "" } else { " " };
            let _ = writeln!(self.0, "  {mark}{space}{line}");
        }
    }
}

/// The plan. The suggested settings are in it, unless they are written to a file.
pub(super) fn plan(planned: &Planned, file: Option<&Path>) -> String {
    let mut page = Page(String::new());
    let fleet = &planned.fleet;
    page.title(&format!(
        "{} x {} x {} x {}",
        plural(fleet.services, "service"),
        plural(fleet.instances, "instance"),
        plural(fleet.pools, "pool"),
        plural(fleet.connections, "connection"),
    ));
    page.text("", &settings(fleet));
    for note in &planned.notes {
        page.text("note:", note);
    }
    connections(&mut page, fleet);
    opens(&mut page, fleet, &planned.prediction);
    times(&mut page, fleet, &planned.prediction);
    costs(&mut page, planned);
    if !planned.growth.is_empty() {
        let now = grouped(fleet.instances);
        page.title(&format!("What fails first as the instances of each service grow, now {now}"));
        for growth in &planned.growth {
            let label = plural(growth.connections, "connection");
            page.line(&label, &format!("at {}: {}", grouped(growth.instances), growth.what));
        }
    }
    if !planned.warnings.is_empty() {
        page.title("Warnings");
        for warning in &planned.warnings {
            let mark = if warning.kind.is_advice() { "-" } else { "!" };
            page.text(mark, &format!("{}. Remedy: {}.", warning.what, warning.remedy));
        }
    }
    suggestion(&mut page, planned, file);
    page.0
}

fn settings(fleet: &Fleet) -> String {
    let leases = match fleet.leases {
        Some(LeaseMode::Ledger) => "leases in a ledger",
        Some(LeaseMode::Counter) => "leases by a counter",
        None => "no leases",
    };
    let sharing = match fleet.sharing {
        Some(RateMode::Bucket) => "shared by a bucket",
        Some(RateMode::Window) => "shared by a window",
        None => "for each process",
    };
    let (rate, burst) = if fleet.sharing.is_some() {
        (fleet.rate.per_second as f64, fleet.rate.burst)
    } else {
        (fleet.local_rate.per_second, fleet.local_rate.burst)
    };
    format!(
        "lifetime {}, jitter {}, guard window {}; {leases}; {rate}/s and a burst of {} {sharing}",
        exact(fleet.lifetime),
        exact(fleet.jitter),
        exact(fleet.guard_window),
        grouped(burst),
    )
}

fn connections(page: &mut Page, fleet: &Fleet) {
    page.title("Connections");
    let (total, limit) = (grouped(fleet.total()), grouped(fleet.cluster_limit));
    page.line("total", &format!("{total} of {limit}, {} % headroom", fleet.headroom_percent()));
    page.line(
        "with replacements",
        &format!("{} at most, while connections are replaced", grouped(fleet.slots())),
    );
    let pools = plural(fleet.pools, "pool");
    page.line("each process", &format!("{} in {pools}", grouped(fleet.per_process())));
}

fn opens(page: &mut Page, fleet: &Fleet, prediction: &Prediction) {
    page.title("Opens per second");
    if let Some(turnover) = prediction.turnover {
        let rule = rate(Turnover::by_lifetime(fleet));
        page.line("steady", &format!("{}/s ({rule}/s by lifetime alone)", rate(turnover.steady)));
        page.line("worst second, steady", &range(turnover.peak, "opens"));
    } else {
        page.line("steady", "no connection can be handed out: see the warnings");
    }
    let (low, high) = prediction.fill.peak;
    page.line(
        "peak, cold start",
        &format!("{} in the worst second", range((round(low), round(high)), "opens")),
    );
    if prediction.fill.refused > 0 {
        let refused = plural(prediction.fill.refused, "open");
        page.line("refused, cold start", &format!("about {refused}: too fast for the cluster (53400)"));
    }
}

fn times(page: &mut Page, fleet: &Fleet, prediction: &Prediction) {
    page.title("Times");
    let fill = about(prediction.fill.time);
    let fill = match prediction.fit {
        Fit::Whole => fill,
        Fit::Split => format!("{fill} to {}", about(prediction.fill.time * 4)),
    };
    page.line("cold start of all", &format!("{fill} until every pool is full"));
    let delay = match fleet.startup_jitter {
        delay if delay.is_zero() => String::new(),
        delay => format!(" after a random delay of up to {}", exact(delay)),
    };
    page.line("start of one process", &format!("{}{delay}", about(prediction.one.time)));
    page.line(
        "rolling restart",
        &format!(
            "{}: one process after the other, {} pause",
            about(prediction.rolling_restart),
            exact(fleet.restart_pause)
        ),
    );
}

fn costs(page: &mut Page, planned: &Planned) {
    let Planned { fleet, cost, prices, prediction, .. } = planned;
    if fleet.leases.is_none() && fleet.sharing.is_none() {
        return;
    }
    page.title("Coordination in DynamoDB, on demand");
    let steady = prediction.turnover.map_or(0.0, |turnover| turnover.steady);
    let mode = match fleet.leases {
        Some(LeaseMode::Ledger) => "mode ledger",
        Some(LeaseMode::Counter) => "mode counter",
        None => "the rate alone",
    };
    page.line(mode, &price(cost, *prices));
    let other = match fleet.leases {
        Some(LeaseMode::Ledger) => Some(("mode counter instead", LeaseMode::Counter)),
        Some(LeaseMode::Counter) => Some(("mode ledger instead", LeaseMode::Ledger)),
        None => None,
    };
    if let Some((name, mode)) = other {
        let other = Cost::of(&Fleet { leases: Some(mode), ..fleet.clone() }, steady);
        page.line(name, &price(&other, *prices));
    }
    let is_default = prices.write == WRITE_PRICE && prices.read == READ_PRICE;
    let of = if is_default { format!(" ({PRICES_OF})") } else { String::new() };
    page.line("prices", &format!("${} / ${} a million{of}", prices.write, prices.read));
}

fn price(cost: &Cost, prices: Prices) -> String {
    let month = cost.monthly(prices);
    format!("${month:.2} a month: {} write, {} read units/s", rate(cost.writes), rate(cost.reads))
}

fn suggestion(page: &mut Page, planned: &Planned, file: Option<&Path>) {
    let improved = &planned.improved;
    page.title("Suggested settings");
    let steady = improved.turnover.map_or(0.0, |turnover| turnover.steady);
    page.text(
        "",
        &format!(
            "With these: {} opens/s, {} in the worst second; a cold start of {}; ${:.2} a month.",
            rate(steady),
            improved.turnover.map_or_else(String::new, |turnover| range(turnover.peak, "")),
            about(improved.fill.time),
            planned.improved_cost.monthly(planned.prices),
        ),
    );
    match file {
        Some(file) => page.text("", &format!("They are in {}.", file.display())),
        None => {
            page.0.push('\n');
            page.0 += &planned.suggestion.env_file();
        }
    }
}

fn range((low, high): (u64, u64), noun: &str) -> String {
    let range = if low == high { grouped(low) } else { format!("{} to {}", grouped(low), grouped(high)) };
    format!("{range} {noun}").trim_end().to_owned()
}

/// The comparison with the simulator.
pub(super) fn check(checked: &Checked) -> String {
    let mut page = Page("\n".to_owned());
    page.0.pop();
    page.title(&format!(
        "\nCheck: the suggested settings in the simulator, {} of virtual time, seed {}",
        about(checked.virtual_time),
        checked.seed
    ));
    let _ = writeln!(page.0, "  {:<26} {:>12} {:>12} {:>9}", "", "predicted", "simulated", "error");
    for row in &checked.rows {
        let verdict = match row.verdict {
            RowVerdict::Holds => "ok",
            RowVerdict::Off => "OFF",
        };
        let error = row.error_percent().map_or_else(String::new, |error| format!("{error:+.1} %"));
        let line = format!(
            "  {:<26} {:>12} {:>12} {error:>9}  {verdict}",
            row.name,
            predicted(row),
            shown(row.unit, row.simulated),
        );
        let _ = writeln!(page.0, "{}", line.trim_end());
    }
    for failure in &checked.failures {
        page.text("FAILED", failure);
    }
    let _ =
        writeln!(page.0, "  {} of {} assertions of the simulator hold", checked.holding, checked.assertions);
    let verdict = if checked.passed() {
        "passed: every prediction is within 10 %, and every assertion holds"
    } else {
        "failed: see the lines marked OFF or FAILED"
    };
    let _ = writeln!(page.0, "  {verdict}");
    page.0
}

fn predicted(row: &Row) -> String {
    let (low, high) = row.predicted;
    if low == high || row.unit == Unit::PerSecond && low > 10.0 && low.round() == high.round() {
        return shown(row.unit, high);
    }
    match row.unit {
        Unit::PerSecond => format!("{} to {}", rate_of(low.round()), shown(row.unit, high.round())),
        Unit::Seconds => format!("{} to {}", shown(row.unit, low), shown(row.unit, high)),
    }
}

fn shown(unit: Unit, number: f64) -> String {
    match unit {
        Unit::Seconds if number < 100.0 => format!("{number:.1}s"),
        Unit::Seconds => about(seconds(number)),
        Unit::PerSecond => format!("{}/s", rate_of(number)),
    }
}

/// Whole numbers without a fraction.
fn rate_of(number: f64) -> String {
    if number >= 1.0 && number.fract() == 0.0 { grouped(round(number)) } else { rate(number) }
}
