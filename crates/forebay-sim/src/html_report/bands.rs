//! The times of disturbances.

use std::time::Duration;

use crate::judge::Recovery;

/// The time from the begin of a disturbance to the end of the recovery.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Band {
    /// In seconds.
    pub(super) from: f64,
    /// In seconds.
    pub(super) to: f64,
    names: Vec<String>,
}

/// How many disturbances the name of a band lists.
const NAMED: usize = 4;

impl Band {
    /// The disturbances in it.
    pub(super) fn name(&self) -> String {
        let mut name = self.names[..self.names.len().min(NAMED)].join("; ");
        if self.names.len() > NAMED {
            name.push_str(&format!("; and {} more", self.names.len() - NAMED));
        }
        name
    }
}

/// The bands in order. Bands too close to be seen apart are merged.
pub(super) fn bands(recoveries: &[Recovery], span: Duration) -> Vec<Band> {
    let closest = span.as_secs_f64() / 400.0;
    let mut all: Vec<Band> = recoveries.iter().map(|recovery| band(recovery, span)).collect();
    all.sort_by(|a, b| a.from.total_cmp(&b.from));
    let mut bands: Vec<Band> = Vec::new();
    for band in all {
        match bands.last_mut() {
            Some(last) if band.from <= last.to + closest => {
                last.to = last.to.max(band.to);
                last.names.extend(band.names);
            }
            _ => bands.push(band),
        }
    }
    bands
}

fn band(recovery: &Recovery, span: Duration) -> Band {
    let recovered = recovery.over.zip(recovery.took).map_or(span, |(over, took)| over + took);
    Band {
        from: recovery.began.min(span).as_secs_f64(),
        to: recovered.clamp(recovery.began.min(span), span).as_secs_f64(),
        names: vec![recovery.disturbance.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovery(name: &str, began: u64, over: Option<u64>, took: Option<u64>) -> Recovery {
        Recovery {
            disturbance: name.to_owned(),
            began: Duration::from_secs(began),
            over: over.map(Duration::from_secs),
            deficit: 0,
            limiter_time: Duration::ZERO,
            allowed: None,
            late: false,
            took: took.map(Duration::from_secs),
        }
    }

    #[test]
    fn overlapping_disturbances_are_one_band() {
        let recoveries = [
            recovery("late", 900, None, None),
            recovery("drop", 100, Some(100), Some(20)),
            recovery("crash", 110, Some(130), Some(10)),
            recovery("refuse", 500, Some(520), Some(0)),
        ];
        let bands = bands(&recoveries, Duration::from_secs(1000));
        let found: Vec<_> = bands.iter().map(|band| (band.from, band.to, band.name())).collect();
        let expected = [(100.0, 140.0, "drop; crash"), (500.0, 520.0, "refuse"), (900.0, 1000.0, "late")];
        assert_eq!(found, expected.map(|(from, to, name)| (from, to, name.to_owned())));
    }

    #[test]
    fn many_names_are_counted() {
        let many: Vec<_> = (0..9).map(|number| recovery("crash", number, Some(number), Some(1))).collect();
        assert_eq!(bands(&many, Duration::from_secs(9))[0].name(), "crash; crash; crash; crash; and 5 more");
    }
}
