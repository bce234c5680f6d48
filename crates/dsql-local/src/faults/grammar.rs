//! The syntax of faults, `KIND:KEY=VALUE,...`, in flags, on the control port and in code.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::fault::{Fault, Kind, Refusal, Stage};

/// All kinds and their keys.
const KINDS: &str = "refuse:how=close|53300|53400|denied|waking  throttle:rate=N,burst=N  delay:at=connect|statement|commit,for=TIME  \
wake:for=TIME  silent  sever:fraction=F,after=TIME  drop:at=before-commit|after-commit  \
unavailable:at=statement|commit|after-commit  conflict  stale-schema:after=ddl; each but sever takes n=TIMES and p=PROBABILITY";

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, keys) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let mut given = BTreeMap::new();
        for pair in keys.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not KEY=VALUE"))?;
            if given.insert(key.trim().to_owned(), value.trim().to_owned()).is_some() {
                return Err(format!("'{}' is given twice", key.trim()));
            }
        }
        // It strikes once and for certain.
        if let Some(key) = ["n", "p"].into_iter().find(|key| kind == "sever" && given.contains_key(*key)) {
            return Err(format!("'sever' takes no '{key}'; there are: {KINDS}"));
        }
        let fault = Self {
            probability: take(&mut given, "p", probability)?.unwrap_or(1.0),
            times: take(&mut given, "n", |text| number(text).map(u64::from))?,
            kind: read_kind(kind, &mut given)?,
        };
        match given.first_key_value() {
            Some((key, _)) => Err(format!("'{kind}' takes no '{key}'; there are: {KINDS}")),
            None => Ok(fault),
        }
    }
}

fn read_kind(kind: &str, given: &mut BTreeMap<String, String>) -> Result<Kind, String> {
    let needed = |key: &str| format!("'{kind}' needs {key}; there are: {KINDS}");
    Ok(match kind {
        "refuse" => Kind::Refuse(take(given, "how", refusal)?.unwrap_or(Refusal::Close)),
        "throttle" => Kind::Throttle {
            per_second: take(given, "rate", number)?.ok_or_else(|| needed("rate"))?,
            burst: take(given, "burst", number)?.unwrap_or(1),
        },
        "delay" => Kind::Delay {
            at: take(given, "at", |text| stage(text, &[Stage::Connect, Stage::Statement, Stage::Commit]))?
                .unwrap_or(Stage::Connect),
            time: take(given, "for", duration)?.ok_or_else(|| needed("for"))?,
        },
        "wake" => Kind::Wake { time: take(given, "for", duration)?.ok_or_else(|| needed("for"))? },
        "silent" => Kind::Silent,
        "sever" => Kind::Sever {
            fraction: take(given, "fraction", probability)?.unwrap_or(1.0),
            after: take(given, "after", duration)?.unwrap_or_default(),
        },
        "drop" => Kind::Drop {
            at: take(given, "at", |text| stage(text, &[Stage::BeforeCommit, Stage::AfterCommit]))?
                .ok_or_else(|| needed("at"))?,
        },
        "unavailable" => Kind::Unavailable {
            at: take(given, "at", |text| {
                stage(text, &[Stage::Statement, Stage::Commit, Stage::AfterCommit])
            })?
            .unwrap_or(Stage::Statement),
        },
        "conflict" => Kind::Conflict,
        "stale-schema" => Kind::StaleSchema { after_ddl: take(given, "after", ddl)?.unwrap_or(false) },
        _ => return Err(format!("there is no fault '{kind}'; there are: {KINDS}")),
    })
}

fn take<T>(
    given: &mut BTreeMap<String, String>,
    key: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    given.remove(key).map(|value| read(&value)).transpose()
}

fn probability(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| format!("'{text}' is not a number from 0 to 1"))
}

fn ddl(text: &str) -> Result<bool, String> {
    if text == "ddl" { Ok(true) } else { Err(format!("'{text}' is not ddl")) }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("'{text}' is not a whole number"))
}

const REFUSALS: [(Refusal, &str); 5] = [
    (Refusal::Close, "close"),
    (Refusal::TooMany, "53300"),
    (Refusal::Rate, "53400"),
    (Refusal::Denied, "denied"),
    (Refusal::Waking, "waking"),
];

const STAGES: [(Stage, &str); 5] = [
    (Stage::Connect, "connect"),
    (Stage::Statement, "statement"),
    (Stage::Commit, "commit"),
    (Stage::BeforeCommit, "before-commit"),
    (Stage::AfterCommit, "after-commit"),
];

fn refusal(text: &str) -> Result<Refusal, String> {
    let found = REFUSALS.into_iter().find(|(_, name)| *name == text).map(|(refusal, _)| refusal);
    found.ok_or_else(|| format!("'{text}' is none of close, 53300, 53400, denied and waking"))
}

fn stage(text: &str, stages: &[Stage]) -> Result<Stage, String> {
    stages.iter().copied().find(|stage| name(&STAGES, *stage) == text).ok_or_else(|| {
        let names: Vec<_> = stages.iter().map(|stage| format!("at={}", name(&STAGES, *stage))).collect();
        format!("'{text}' is none of {}", names.join(", "))
    })
}

fn name<T: PartialEq>(names: &[(T, &'static str)], of: T) -> &'static str {
    names.iter().find(|(item, _)| *item == of).map_or("", |(_, name)| name)
}

/// Parses a duration such as `250ms`, `1.5s`, `60m` or `1h`.
///
/// # Errors
/// If it is not a duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let problem = || format!("'{text}' is not a duration: write 250ms, 1.5s, 60m or 1h");
    let (digits, unit) =
        text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(problem)?);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(problem()),
    };
    let count: f64 = digits.parse().map_err(|_| problem())?;
    Duration::try_from_secs_f64(count * factor).map_err(|_| problem())
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = |at: Stage| format!("at={}", name(&STAGES, at));
        let (kind, mut keys) = match &self.kind {
            Kind::Refuse(refusal) => ("refuse", vec![format!("how={}", name(&REFUSALS, *refusal))]),
            Kind::Throttle { per_second, burst } => {
                ("throttle", vec![format!("rate={per_second}"), format!("burst={burst}")])
            }
            Kind::Delay { at, time } => ("delay", vec![stage(*at), format!("for={}s", time.as_secs_f64())]),
            Kind::Wake { time } => ("wake", vec![format!("for={}s", time.as_secs_f64())]),
            Kind::Silent => ("silent", vec![]),
            Kind::Sever { fraction, after } => {
                ("sever", vec![format!("fraction={fraction}"), format!("after={}s", after.as_secs_f64())])
            }
            Kind::Drop { at } => ("drop", vec![stage(*at)]),
            Kind::Unavailable { at } => ("unavailable", vec![stage(*at)]),
            Kind::Conflict => ("conflict", vec![]),
            Kind::StaleSchema { after_ddl } => {
                ("stale-schema", after_ddl.then(|| "after=ddl".to_owned()).into_iter().collect())
            }
        };
        keys.extend(self.times.map(|times| format!("n={times}")));
        keys.extend((self.probability < 1.0).then(|| format!("p={}", self.probability)));
        f.write_str(kind)?;
        if keys.is_empty() { Ok(()) } else { write!(f, ":{}", keys.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_round_trip_through_text() {
        let list = [
            "refuse:how=53300,n=5",
            "refuse:how=close,p=0.5",
            "throttle:rate=5,burst=2",
            "delay:at=statement,for=0.25s,p=0.1",
            "wake:for=30s",
            "silent:n=3",
            "sever:fraction=0.5,after=60s",
            "drop:at=after-commit,n=1",
            "unavailable:at=commit",
            "unavailable:at=after-commit",
            "conflict:p=0.25",
            "stale-schema",
            "stale-schema:after=ddl,n=2",
        ];
        for text in list {
            assert_eq!(text.parse::<Fault>().map(|fault| fault.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("delay:for=250ms".parse::<Fault>().unwrap().to_string(), "delay:at=connect,for=0.25s");
    }

    #[test]
    fn invalid_faults_are_explained() {
        for (text, part) in [
            ("explode", "there is no fault 'explode'; there are: refuse"),
            ("conflict:p=2", "'2' is not a number from 0 to 1"),
            ("conflict:when=now", "'conflict' takes no 'when'"),
            ("delay", "'delay' needs for"),
            ("delay:for=5", "'5' is not a duration"),
            ("delay:at=after-commit,for=1s", "'after-commit' is none of at=connect, at=statement, at=commit"),
            ("delay:at=foo,for=1s", "'foo' is none of at=connect, at=statement, at=commit"),
            ("unavailable:at=connect", "'connect' is none of at=statement, at=commit, at=after-commit"),
            ("conflict:p=0.1,p=0.2", "'p' is given twice"),
            ("drop:at=noon", "'noon' is none of at=before-commit, at=after-commit"),
            ("delay:for", "not KEY=VALUE"),
            ("stale-schema:after=dml", "'dml' is not ddl"),
            ("sever:n=1", "'sever' takes no 'n'"),
            ("sever:p=0.5", "'sever' takes no 'p'"),
        ] {
            let problem = text.parse::<Fault>().unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("60m"), duration("1h"));
        for bad in ["", "s", "-1s", "1e400s", "1 week", "NaNs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
