//! The plan as JSON.

use forebay_fleet::{LeaseMode, RateMode};
use serde_json::{Map, Value, json};

use super::Planned;
use super::check::{Checked, RowVerdict, Unit};
use super::cost::{Cost, PRICES_OF, Prices, READ_PRICE, WRITE_PRICE};
use super::fleet::Fleet;
use super::prediction::{Fit, Prediction};
use super::turnover::Turnover;

/// The plan as one object. Times are in seconds, rates per second, prices in dollars.
pub(super) fn plan(planned: &Planned, checked: Option<&Checked>) -> Value {
    let Planned { fleet: planned_fleet, suggestion, prices, .. } = planned;
    let settings: Map<String, Value> = suggestion
        .settings
        .iter()
        .map(|setting| (setting.variable.to_owned(), setting.value.clone().into()))
        .collect();
    let warnings = planned.warnings.iter().map(|warning| {
        json!({
            "kind": warning.kind.name(),
            "advice": warning.kind.is_advice(),
            "what": warning.what,
            "remedy": warning.remedy,
        })
    });
    let growth = planned.growth.iter().map(|growth| {
        json!({ "instances": growth.instances, "connections": growth.connections, "what": growth.what })
    });
    let is_default = prices.write == WRITE_PRICE && prices.read == READ_PRICE;
    json!({
        "fleet": fleet(planned_fleet),
        "notes": planned.notes,
        "prediction": prediction(planned_fleet, &planned.prediction),
        "cost": cost(&planned.cost, *prices),
        "prices": {
            "write_per_million": prices.write,
            "read_per_million": prices.read,
            "of": is_default.then_some(PRICES_OF),
        },
        "growth": growth.collect::<Value>(),
        "warnings": warnings.collect::<Value>(),
        "suggestion": {
            "settings": settings,
            "fleet": fleet(&suggestion.fleet),
            "prediction": prediction(&suggestion.fleet, &planned.improved),
            "cost": cost(&planned.improved_cost, *prices),
        },
        "check": checked.map(check),
    })
}

fn fleet(fleet: &Fleet) -> Value {
    let leases = fleet.leases.map(|mode| match mode {
        LeaseMode::Ledger => "ledger",
        LeaseMode::Counter => "counter",
    });
    let sharing = fleet.sharing.map(|mode| match mode {
        RateMode::Bucket => "bucket",
        RateMode::Window => "window",
    });
    json!({
        "services": fleet.services,
        "instances": fleet.instances,
        "pools": fleet.pools,
        "connections_per_pool": fleet.connections,
        "low_watermark": fleet.watermark.of(fleet.connections),
        "processes": fleet.processes(),
        "connections": fleet.total(),
        "connections_with_replacements": fleet.slots(),
        "cluster_limit": fleet.cluster_limit,
        "limit": fleet.limit,
        "headroom_percent": fleet.headroom_percent(),
        "lifetime": fleet.lifetime.as_secs_f64(),
        "jitter": fleet.jitter.as_secs_f64(),
        "guard_window": fleet.guard_window.as_secs_f64(),
        "startup_jitter": fleet.startup_jitter.as_secs_f64(),
        "leases": leases,
        "rate_mode": sharing,
        "rate": fleet.rate.per_second,
        "burst": fleet.rate.burst,
        "local_rate": fleet.local_rate.per_second,
        "local_burst": fleet.local_rate.burst,
    })
}

fn prediction(fleet: &Fleet, prediction: &Prediction) -> Value {
    let turnover = prediction.turnover;
    json!({
        "steady_opens": turnover.map(|turnover| rounded(turnover.steady)),
        "steady_opens_by_lifetime": rounded(Turnover::by_lifetime(fleet)),
        "worst_second_steady": turnover.map(|turnover| json!({ "from": turnover.peak.0, "to": turnover.peak.1 })),
        "average_life": turnover.map(|turnover| rounded(turnover.life.as_secs_f64())),
        "peak_opens": { "from": rounded(prediction.fill.peak.0), "to": rounded(prediction.fill.peak.1) },
        "refused_opens": prediction.fill.refused,
        "fill_time": rounded(prediction.fill.time.as_secs_f64()),
        "fill_time_is_lower_bound": prediction.fit == Fit::Split,
        "fill_time_of_one": rounded(prediction.one.time.as_secs_f64()),
        "rolling_restart": rounded(prediction.rolling_restart.as_secs_f64()),
    })
}

fn cost(cost: &Cost, prices: Prices) -> Value {
    json!({
        "write_units": rounded(cost.writes),
        "read_units": rounded(cost.reads),
        "dollars_per_month": rounded(cost.monthly(prices)),
    })
}

fn check(checked: &Checked) -> Value {
    let rows = checked.rows.iter().map(|row| {
        json!({
            "name": row.name,
            "unit": match row.unit {
                Unit::Seconds => "s",
                Unit::PerSecond => "/s",
            },
            "predicted": { "from": rounded(row.predicted.0), "to": rounded(row.predicted.1) },
            "simulated": rounded(row.simulated),
            "error_percent": row.error_percent().map(rounded),
            "holds": row.verdict == RowVerdict::Holds,
        })
    });
    json!({
        "seed": checked.seed,
        "virtual_seconds": checked.virtual_time.as_secs_f64(),
        "rows": rows.collect::<Value>(),
        "assertions": checked.assertions,
        "assertions_that_hold": checked.holding,
        "failures": checked.failures,
        "passed": checked.passed(),
    })
}

/// To four decimal places.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
