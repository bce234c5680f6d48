//! The sentence that says what a pool does, and why.

use std::time::Duration;

use crate::history::Rates;
use crate::sample::{Levels, Sample};
use crate::words::{count, duration, many, rate, size};

/// What a pool does, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It opens its first connections.
    Starting,
    /// All connections are there.
    Full,
    /// Connections are opened only when callers wait, and none waits.
    OnDemand,
    /// Connections are missing, and are being opened.
    Refilling,
    /// Opens fail, and connections are missing or will be.
    Failing,
    /// Callers wait because all connections are in use.
    Exhausted,
    /// No connection is usable.
    Empty,
    /// It is closed, and some connections are not.
    Draining,
    /// It is closed.
    Closed,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Notice,
    Bad,
}

impl State {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Full => "full",
            Self::OnDemand => "on_demand",
            Self::Refilling => "refilling",
            Self::Failing => "failing",
            Self::Exhausted => "exhausted",
            Self::Empty => "empty",
            Self::Draining => "draining",
            Self::Closed => "closed",
        }
    }

    pub(crate) const fn tone(self) -> Tone {
        match self {
            Self::Full | Self::OnDemand => Tone::Good,
            Self::Starting | Self::Refilling | Self::Draining | Self::Closed => Tone::Notice,
            Self::Failing | Self::Exhausted | Self::Empty => Tone::Bad,
        }
    }
}

impl Tone {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Notice => "notice",
            Self::Bad => "bad",
        }
    }
}

/// What a pool does, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) state: State,
    pub(crate) text: String,
}

/// Describes a pool that exists. `has_filled`: it has reached its low watermark before.
pub(crate) fn describe(sample: &Sample, rates: &Rates, has_filled: bool) -> Sentence {
    let levels = &sample.levels;
    if levels.closed {
        return closed(levels);
    }
    let lacking = levels.lacking();
    let (state, text) = if lacking == 0 && levels.waiting > 0 {
        let text = format!("{}: all {} connections are in use", callers_wait(levels), size(levels.usable()));
        (State::Exhausted, text)
    } else if lacking == 0 && is_failing(sample, rates) && is_trying(sample, rates) {
        // It looks well, but connections that end now are not replaced.
        (State::Failing, format!("{}, but {}", stock(sample), obstacle(sample)))
    } else if lacking == 0 {
        at_rest(sample)
    } else {
        let failing = is_failing(sample, rates);
        let refill = refill(sample, rates);
        if levels.waiting > 0 {
            let usable = format!("{} of {} usable", size(levels.usable()), size(levels.max_open));
            let state = if levels.usable() == 0 {
                State::Empty
            } else if failing {
                State::Failing
            } else {
                State::Refilling
            };
            (state, format!("{}: {usable}; {refill}", callers_wait(levels)))
        } else if levels.usable() == 0 && (has_filled || failing) {
            (State::Empty, format!("empty: {refill}"))
        } else if failing {
            let usable = format!("{} of {} usable", size(levels.usable()), size(levels.goal()));
            (State::Failing, format!("{usable}: {refill}"))
        } else if has_filled {
            (State::Refilling, refill)
        } else {
            let usable = format!("{} of {} usable", size(levels.usable()), size(levels.goal()));
            (State::Starting, format!("starting, {usable}: {refill}"))
        }
    };
    Sentence { state, text }
}

/// Describes a pool that is gone.
pub(crate) fn gone() -> Sentence {
    Sentence { state: State::Closed, text: "closed: the pool is gone".into() }
}

/// Describes a pool that no sample has seen.
pub(crate) fn unknown() -> Sentence {
    Sentence { state: State::Starting, text: "starting: it was not read yet".into() }
}

fn closed(levels: &Levels) -> Sentence {
    if levels.left() == 0 {
        return Sentence { state: State::Closed, text: "closed: all connections are closed".into() };
    }
    let parts = [
        (levels.in_use, "still in use"),
        (levels.ready + levels.in_maintenance + levels.opening, "to be closed"),
        (levels.closing, "closing"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<_> = parts.map(|(number, what)| format!("{} {what}", size(*number))).collect();
    Sentence { state: State::Draining, text: format!("draining: {}", parts.join(", ")) }
}

fn callers_wait(levels: &Levels) -> String {
    match levels.waiting {
        1 => "1 caller waits".into(),
        waiting => format!("{} wait", many(waiting as u64, "caller")),
    }
}

/// Nothing is missing and nobody waits.
fn at_rest(sample: &Sample) -> (State, String) {
    if sample.lifecycle.on_demand {
        return (State::OnDemand, stock(sample));
    }
    let replacing = replacing(sample).map(|pace| format!(", replacing {pace}")).unwrap_or_default();
    (State::Full, format!("{}{replacing}", stock(sample)))
}

/// How many connections there are.
fn stock(sample: &Sample) -> String {
    let levels = &sample.levels;
    let in_use = match levels.in_use {
        0 => String::new(),
        in_use => format!(", {} in use", size(in_use)),
    };
    let (ready, usable) = (size(levels.ready), size(levels.usable()));
    if sample.lifecycle.on_demand {
        return format!("on demand: {ready} of {usable} ready{in_use}, {} at most", size(levels.max_open));
    }
    format!("full: {ready} of {usable} ready{in_use}")
}

/// How often a connection is replaced, in the long run.
fn replacing(sample: &Sample) -> Option<String> {
    let lifetime = sample.lifecycle.lifetime?;
    let usable = u32::try_from(sample.levels.usable()).ok().filter(|usable| *usable > 0)?;
    if !sample.lifecycle.replace_ahead {
        return None;
    }
    let each = lifetime.base / usable;
    if each >= Duration::from_secs(1) {
        return Some(format!("about one every {}", duration(each)));
    }
    Some(format!("about {}", rate(1.0 / each.as_secs_f64().max(1e-6))))
}

/// Whether opens fail and none succeeds. One that fails among many that succeed is no state of its own.
fn is_failing(sample: &Sample, rates: &Rates) -> bool {
    sample.refill.last_failure.is_some() && rates.opens == 0.0
}

/// Whether opens were tried lately, or will be soon. A pool that opens on demand may have failed hours ago, and
/// nobody has waited since.
fn is_trying(sample: &Sample, rates: &Rates) -> bool {
    let refill = &sample.refill;
    sample.levels.opening > 0
        || refill.missing > 0
        || refill.paused_for.is_some()
        || rates.open_failures > 0.0
}

/// What the refill does, and what it waits for.
fn refill(sample: &Sample, rates: &Rates) -> String {
    if rates.opens > 0.0 { progress(sample, rates) } else { obstacle(sample) }
}

/// Connections are being opened: how fast, why not faster, and for how long.
fn progress(sample: &Sample, rates: &Rates) -> String {
    let refill = &sample.refill;
    let limited = if refill.rate_share < 0.995 {
        format!(", slowed to {:.0} % of the rate because the server pushed back", refill.rate_share * 100.0)
    } else if refill.waiting_for_permit > 0 {
        format!(", limited by {}", refill.limiter)
    } else if refill.waiting_for_lease > 0 {
        ", limited by leases".into()
    } else {
        String::new()
    };
    let failing = match rates.open_failures {
        0.0 => String::new(),
        failures => format!(", while {} fail", rate(failures)),
    };
    format!("refilling at {}{limited}{failing}{}", rate(rates.opens), to_target(sample, rates))
}

/// No connection was opened lately: the first reason that explains it.
fn obstacle(sample: &Sample) -> String {
    let refill = &sample.refill;
    let opening = sample.levels.opening;
    if let Some(failure) = &refill.last_failure {
        let next = match (refill.paused_for, opening) {
            (Some(pause), _) => format!("next try in {}", duration(pause)),
            (None, 0) => "trying again".into(),
            (None, opening) => format!("trying again with {}", size(opening)),
        };
        return format!("opens fail ({}); {next}", failure.text);
    }
    // An open waits for a token, then for a lease, then for a permit. If all wait, what most wait for explains it.
    let waits = [refill.waiting_for_token, refill.waiting_for_lease, refill.waiting_for_permit];
    let most = waits.into_iter().max().unwrap_or_default();
    if opening > 0 && waits.iter().sum::<usize>() >= opening {
        if refill.waiting_for_token == most {
            return "waiting for a token".into();
        }
        if refill.waiting_for_lease == most {
            return no_lease(sample);
        }
        let permitted = refill.per_second * refill.rate_share;
        return match permitted.is_finite() {
            true => format!("waiting for {}, which permits {}", refill.limiter, rate(permitted)),
            false => format!("waiting for {}", refill.limiter),
        };
    }
    match (opening, refill.paused_for) {
        (0, Some(pause)) => format!("the server asked for fewer opens; next try in {}", duration(pause)),
        (0, None) => "no open has started yet".into(),
        (opening, _) => format!("opening {}", many(opening as u64, "connection")),
    }
}

fn no_lease(sample: &Sample) -> String {
    match &sample.fleet {
        Some(fleet) if fleet.outage.is_some() => {
            "waiting for a lease: the fleet's table does not answer".into()
        }
        Some(fleet) if fleet.active >= fleet.limit => {
            let (active, limit) = (count(fleet.active), count(fleet.limit));
            format!("waiting for a lease: the fleet has {active} of {limit} in use")
        }
        _ => "waiting for a lease".into(),
    }
}

/// How long the rest takes at the present rate.
fn to_target(sample: &Sample, rates: &Rates) -> String {
    let refill = &sample.refill;
    let permitted = refill.per_second * refill.rate_share;
    // The measured rate is that of two seconds. It is far too low while a refill has just begun. Opens that wait for permits
    // come at the rate of the permits.
    let has_just_begun =
        refill.waiting_for_permit > 0 && permitted.is_finite() && rates.opens < permitted / 2.0;
    let opens = if has_just_begun { permitted } else { rates.opens };
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    let seconds = sample.levels.lacking() as f64 / opens;
    match Duration::try_from_secs_f64(seconds.max(1.0).round()) {
        Ok(rest) if rest <= Duration::from_secs(24 * 3600) => format!("; {} to target", duration(rest)),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
