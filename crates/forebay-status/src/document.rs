//! The JSON of `/status.json` and of the event stream. docs/status-page.md documents the fields.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::{CheckoutFailure, Discard, Failure};
use serde_json::{Map, Value, json};

use crate::ages::Ages;
use crate::board::{Board, Watched};
use crate::event_log::Entry;
use crate::history::Rates;
use crate::sample::{Sample, Totals};

/// The version of the format. Fields may be added without a new version.
const VERSION: u64 = 1;

/// All that is known, as `/status.json` shows it.
pub(crate) fn status(board: &Board) -> Value {
    let mut document = head(board);
    document.insert("pools".into(), board.pools.iter().map(|(name, watched)| pool(name, watched)).collect());
    document.insert("events".into(), board.log.entries().map(event).collect());
    Value::Object(document)
}

/// The first message of an event stream: the status, and the history of each pool.
pub(crate) fn whole(board: &Board) -> Value {
    let mut document = status(board);
    let histories = board.pools.iter().map(|(name, watched)| (name.clone(), history(watched)));
    document["history"] = Value::Object(histories.collect());
    document
}

/// Each further message: the status, with only those events that are new or have grown.
pub(crate) fn sample(board: &Board) -> Value {
    let mut document = head(board);
    document.insert("pools".into(), board.pools.iter().map(|(name, watched)| pool(name, watched)).collect());
    let news = board.log.entries().filter(|entry| entry.tick >= board.tick);
    document.insert("events".into(), news.map(event).collect());
    Value::Object(document)
}

fn head(board: &Board) -> Map<String, Value> {
    let started = board.started.unwrap_or(board.now);
    let unready = board.unready();
    let document = json!({
        "version": VERSION,
        "forebay": env!("CARGO_PKG_VERSION"),
        "tick": board.tick,
        "time": unix(board.now.wall),
        "process": {
            "started": unix(started.wall),
            "uptime_seconds": seconds(board.now.at.since(started.at)),
        },
        "ready": unready.is_empty(),
        "unready": unready,
    });
    match document {
        Value::Object(document) => document,
        _ => Map::new(),
    }
}

fn pool(name: &str, watched: &Watched) -> Value {
    let sentence = watched.sentence();
    let mut pool = json!({
        "name": name,
        "state": sentence.state.label(),
        "tone": sentence.state.tone().label(),
        "sentence": sentence.text,
        "ready": watched.unready().is_none(),
        "gone": watched.tracker.is_gone(),
    });
    if let Some(sample) = watched.tracker.last() {
        pool["mode"] = json!(sample.mode);
        pool["levels"] = levels(sample, watched.tracker.is_gone());
        pool["counters"] = counters(&sample.totals);
        pool["rates"] = rates(&watched.history.rates());
        pool["refill"] = refill(sample);
        pool["config"] = config(sample);
        pool["ages"] = watched.ages.as_ref().map(ages).into();
        pool["fleet"] = fleet(sample);
        pool["token"] = token(sample);
    }
    pool
}

fn levels(sample: &Sample, is_gone: bool) -> Value {
    let now = if is_gone { Default::default() } else { sample.levels };
    json!({
        "ready": now.ready,
        "in_use": now.in_use,
        "in_maintenance": now.in_maintenance,
        "opening": now.opening,
        "closing": now.closing,
        "retiring": now.retiring,
        "usable": now.usable(),
        "waiting": now.waiting,
        "max_open": sample.levels.max_open,
        "target_ready": sample.levels.target_ready,
        "low_watermark": sample.levels.low_watermark,
        "closed": sample.levels.closed || is_gone,
    })
}

fn counters(totals: &Totals) -> Value {
    json!({
        "checkouts": totals.checkouts,
        "waits": totals.waits,
        "empty": totals.empty,
        "exhausted": totals.exhausted,
        "opened": totals.opened,
        "detached": totals.detached,
        "checkout_failures": by_label(CheckoutFailure::ALL.map(CheckoutFailure::label), &totals.checkout_failures),
        "discards": by_label(Discard::ALL.map(Discard::label), &totals.discards),
        "open_failures": by_label(Failure::ALL.map(Failure::label), &totals.open_failures),
    })
}

/// Counts by label. Two reasons can have the same label.
fn by_label<const N: usize>(labels: [&'static str; N], counts: &[u64; N]) -> Value {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (label, count) in labels.into_iter().zip(counts) {
        *sums.entry(label).or_default() += count;
    }
    sums.into_iter().map(|(label, sum)| (label.to_owned(), Value::from(sum))).collect()
}

fn rates(rates: &Rates) -> Value {
    json!({
        "opens_per_second": hundredth(rates.opens),
        "opens_per_second_peak": hundredth(rates.opens_peak),
        "open_failures_per_second": hundredth(rates.open_failures),
        "checkouts_per_second": hundredth(rates.checkouts),
        "waits_per_second": hundredth(rates.waits),
        "discards_per_second": hundredth(rates.discards),
    })
}

fn refill(sample: &Sample) -> Value {
    let refill = &sample.refill;
    json!({
        "missing": refill.missing,
        "waiting_for_token": refill.waiting_for_token,
        "waiting_for_lease": refill.waiting_for_lease,
        "waiting_for_permit": refill.waiting_for_permit,
        "paused_seconds": refill.paused_for.map(seconds),
        "rate_share": refill.rate_share,
        "permitted_per_second": hundredth(refill.per_second),
        "permitted_at_once": refill.at_once,
        "limiter": refill.limiter,
        "last_failure": refill.last_failure.as_ref().map(|failure| json!({
            "reason": failure.reason.label(),
            "text": failure.text,
            "permanent": failure.permanent,
        })),
    })
}

fn config(sample: &Sample) -> Value {
    let (lifecycle, levels) = (&sample.lifecycle, &sample.levels);
    json!({
        "max_open": levels.max_open,
        "target_ready": levels.target_ready,
        "low_watermark": levels.low_watermark,
        "on_demand": lifecycle.on_demand,
        "replace_ahead": lifecycle.replace_ahead,
        "rate_per_second": lifecycle.rate,
        "burst": lifecycle.burst,
        "lifetime": lifecycle.lifetime.map(|lifetime| json!({
            "base_seconds": seconds(lifetime.base),
            "jitter_seconds": seconds(lifetime.jitter),
            "guard_seconds": seconds(lifetime.guard),
        })),
        "server_limit_seconds": lifecycle.server_limit.map(seconds),
    })
}

fn ages(ages: &Ages) -> Value {
    json!({
        "bar_seconds": seconds(ages.width),
        "ready": ages.ready,
        "in_use": ages.in_use,
        "in_maintenance": ages.in_maintenance,
        "oldest_seconds": seconds(ages.oldest),
        "next_retirement_seconds": ages.next_retirement.map(seconds),
        "next_guard_seconds": ages.next_guard.map(seconds),
        "earliest_retirement_seconds": ages.earliest_retirement.map(seconds),
        "earliest_guard_seconds": ages.earliest_guard.map(seconds),
    })
}

fn fleet(sample: &Sample) -> Value {
    let fleet = sample.fleet.as_ref().map(|fleet| {
        json!({
            "instance": fleet.instance,
            "slots": fleet.slots,
            "leases": fleet.leases,
            "active": fleet.active,
            "limit": fleet.limit,
            "outage_seconds": fleet.outage.map(seconds),
        })
    });
    fleet.into()
}

fn token(sample: &Sample) -> Value {
    let token = sample.token.map(|token| {
        json!({
            "age_seconds": seconds(token.age),
            "good_for_seconds": seconds(token.good_for),
            "failures": token.failures,
        })
    });
    token.into()
}

fn event(entry: &Entry) -> Value {
    json!({
        "id": entry.id,
        "time": unix(entry.time()),
        "until": unix(entry.until()),
        "pool": entry.pool,
        "tone": entry.change.tone(),
        "text": entry.change.text(),
    })
}

/// One array for each sample, oldest first: the time, then ready, in use, in maintenance, opening, waiting, and
/// the counters of opens, failed opens, discards and waits, then the permitted rate.
fn history(watched: &Watched) -> Value {
    let row = |point: &crate::history::Point| {
        let levels = &point.levels;
        json!([
            unix(point.wall),
            levels.ready,
            levels.in_use,
            levels.in_maintenance,
            levels.opening,
            levels.waiting,
            point.opened,
            point.failed,
            point.discarded,
            point.waits,
            hundredth(point.permitted),
        ])
    };
    watched.history.points().map(row).collect()
}

/// Seconds since 1970, to a millisecond.
fn unix(wall: Duration) -> f64 {
    seconds(wall)
}

/// To a millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// To a hundredth. JSON has no infinity: a limiter without a limit has no number.
fn hundredth(number: f64) -> Option<f64> {
    number.is_finite().then(|| (number * 100.0).round() / 100.0)
}
