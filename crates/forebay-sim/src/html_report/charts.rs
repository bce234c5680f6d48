//! The charts of a run.

use std::time::Duration;

use forebay::Discard;

use super::bands::bands;
use super::chart::{Background, Chart, Column, Drawing, Series, Shape, Unit};
use super::downsample::{Point, Slots, downsample};
use super::scale::{Scale, amount, decade, length, time_unit};
use crate::outcome::{Outcome, grouped};
use crate::samples::Sample;

/// The colours of the most frequent reasons: as many as everybody can distinguish.
const REASONS: [&str; 7] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7"];

type Gauge = fn(&Sample) -> usize;

/// Makes the charts of a run.
pub(super) struct RunCharts<'a> {
    outcome: &'a Outcome,
    samples: &'a [Sample],
    slots: Slots,
    span: Duration,
}

impl<'a> RunCharts<'a> {
    pub(super) fn new(outcome: &'a Outcome) -> Self {
        let samples = outcome.samples.as_slice();
        let last = samples.last().map_or(Duration::ZERO, |sample| sample.at);
        let span = outcome.virtual_time.max(last).max(Duration::from_secs(1));
        let every = match samples {
            [first, second, ..] => second.at.saturating_sub(first.at),
            _ => span,
        };
        Self { outcome, samples, slots: Slots::new(every, span), span }
    }

    pub(super) fn background(&self) -> Background {
        Background { time: Scale::time(self.span), bands: bands(&self.outcome.recoveries, self.span) }
    }

    /// The unit of the time axis.
    pub(super) fn time_unit(&self) -> &'static str {
        time_unit(self.span)
    }

    pub(super) fn all(&self) -> Vec<Chart> {
        let mut charts = vec![self.connections(), self.connects(), self.discards(), self.waits()];
        if self.samples.iter().skip(1).any(|sample| sample.checkouts > 0) {
            charts.push(self.checkouts());
        }
        if self.samples.iter().any(|sample| sample.failed > 0) {
            charts.push(self.failures());
        }
        charts
    }

    fn connections(&self) -> Chart {
        let target = self.outcome.target as f64;
        let parts: [(&str, &str, Gauge); 3] = [
            ("ready", "c1", |sample| sample.ready),
            ("in use", "c2", |sample| sample.in_use),
            ("opening", "c3", |sample| sample.opening),
        ];
        let most = |part: Gauge| self.samples.iter().map(part).max().unwrap_or(0);
        let highest = parts.iter().map(|(_, _, part)| most(*part)).max().unwrap_or(0);
        let described = parts.map(|(name, _, part)| format!("at most {} {name}", grouped(most(part) as u64)));
        let series = parts.map(|(name, colour, part)| {
            let points = self.line(|sample| part(sample) as f64);
            let shape = if name == "ready" { Shape::Area(points) } else { Shape::Line(points) };
            let total = format!("max {}", grouped(most(part) as u64));
            Series { name: name.to_owned(), total, colour, shape }
        });
        let (described, shown) = (described.join(", "), amount(target));
        let description = format!("Connections over time: {described}; the target is {shown}.");
        let most = target.max(highest as f64);
        let rule = Some((format!("target {shown}"), target));
        let drawing = Drawing { rule, ..Drawing::counts(description, most, series.into()) };
        self.chart("connections", "Connections", String::new(), Ok(drawing))
    }

    fn connects(&self) -> Chart {
        let limit = self.outcome.limiter_per_sec;
        let peaks = self.slot_values(|peak: &mut u64, sample| *peak = (*peak).max(sample.peak_connects));
        let highest = peaks.iter().copied().max().unwrap_or(0);
        let columns = self.columns(peaks.iter().map(|peak| (0.0, *peak as f64)));
        let (highest_shown, limit_shown) = (grouped(highest), amount(limit));
        let series = series("connects", format!("max {highest_shown}"), "c1", columns);
        let description = format!(
            "Connects per second over time: at most {highest_shown}; the limiter admits {limit_shown} per second."
        );
        let rule = Some((format!("limiter {limit_shown}/s"), limit));
        let drawing =
            Drawing { rule, ..Drawing::counts(description, limit.max(highest as f64), vec![series]) };
        let note = format!("the busiest second in each {}", length(self.slots.length));
        self.chart("connects", "Connects per second", note, Ok(drawing))
    }

    fn discards(&self) -> Chart {
        type ByReason = [u64; Discard::ALL.len()];
        let slots = self.slot_values(|sum: &mut ByReason, sample| {
            sum.iter_mut().zip(sample.discards).for_each(|(sum, more)| *sum += more);
        });
        let total = |reason: &Discard| slots.iter().map(|slot| slot[reason.index()]).sum::<u64>();
        let mut reasons: Vec<Discard> = Discard::ALL.into_iter().filter(|reason| total(reason) > 0).collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(total(reason)));
        let mut groups: Vec<(&[Discard], &'static str)> = reasons.chunks(1).zip(REASONS).collect();
        if let Some(rest @ [_, ..]) = reasons.get(REASONS.len()..) {
            groups.push((rest, "c8"));
        }
        let mut floor = vec![0_u64; slots.len()];
        let mut series = Vec::new();
        for (group, colour) in groups {
            let sum = |slot: &ByReason| group.iter().map(|reason| slot[reason.index()]).sum::<u64>();
            let reach = slots.iter().zip(&mut floor).map(|(slot, floor)| {
                let low = *floor;
                *floor += sum(slot);
                (low as f64, *floor as f64)
            });
            let shape = self.columns(reach);
            let names: Vec<&str> = group.iter().map(|reason| reason.label()).collect();
            let total = grouped(group.iter().map(total).sum());
            series.push(Series { name: names.join(", "), total, colour, shape });
        }
        let described: Vec<String> =
            reasons.iter().map(|reason| format!("{} {}", grouped(total(reason)), reason.label())).collect();
        let highest = floor.iter().copied().max().unwrap_or(0);
        let description = format!("Discards over time, by reason: {}.", described.join(", "));
        let drawing = Drawing::counts(description, highest as f64, series);
        let drawing = if reasons.is_empty() { Err("Nothing was discarded.") } else { Ok(drawing) };
        self.chart("discards", "Discards by reason", self.per_slot(), drawing)
    }

    fn waits(&self) -> Chart {
        let slots = self.slot_values(|worst: &mut [Duration; 3], sample| {
            let waits = [sample.wait_max, sample.wait_p99, sample.wait_p50];
            worst.iter_mut().zip(waits).for_each(|(worst, wait)| *worst = (*worst).max(wait));
        });
        let waits = || slots.iter().flatten().filter(|wait| !wait.is_zero());
        let drawing = match (waits().min(), waits().max()) {
            (Some(least), Some(most)) => {
                let values = Scale::waits(*least, *most);
                let parts = [("longest", "w1"), ("p99", "w2"), ("p50", "w3")];
                let worst = |part: usize| slots.iter().map(|slot| slot[part]).max().unwrap_or_default();
                let series = parts.into_iter().enumerate().map(|(part, (name, colour))| Series {
                    name: name.to_owned(),
                    total: format!("max {}", length(worst(part))),
                    colour,
                    shape: self.columns(slots.iter().map(|slot| {
                        let top = if slot[part].is_zero() { values.low } else { decade(slot[part]) };
                        (values.low, top)
                    })),
                });
                let description =
                    format!("Waits over time, on a logarithmic scale: at most {}.", length(*most));
                let series = series.collect();
                Ok(Drawing { description, unit: Unit::Decade, series, values, rule: None })
            }
            _ if self.outcome.counts.checkouts == 0 => Err("No callers."),
            _ => Err("No caller waited."),
        };
        let note = format!("the worst sample in each {}; powers of ten", length(self.slots.length));
        self.chart("waits", "Waits", note, drawing)
    }

    fn checkouts(&self) -> Chart {
        // The counts of a sample begin at the previous one, so the first has none.
        let rate = |pair: &[Sample]| {
            let passed = pair[1].at.saturating_sub(pair[0].at).as_secs_f64();
            (pair[1].at.as_secs_f64(), pair[1].checkouts as f64 / passed.max(0.001))
        };
        let rates: Vec<Point> = self.samples.windows(2).map(rate).collect();
        let highest = rates.iter().map(|point| point.1).fold(0.0, f64::max);
        let total = grouped(self.outcome.counts.checkouts);
        let series = series("checkouts", total, "c1", Shape::Area(downsample(&rates)));
        let description = format!("Checkouts per second over time: at most {}.", amount(highest));
        let drawing = Drawing::counts(description, highest, vec![series]);
        let note = if self.samples.iter().all(|sample| sample.failed == 0) { "none failed" } else { "" };
        self.chart("checkouts", "Checkouts per second", note.to_owned(), Ok(drawing))
    }

    fn failures(&self) -> Chart {
        let slots = self.slot_values(|sum: &mut u64, sample| *sum += sample.failed);
        let total: u64 = slots.iter().sum();
        let columns = self.columns(slots.iter().map(|failed| (0.0, *failed as f64)));
        let description = format!("Failed checkouts over time: {} in all.", grouped(total));
        let highest = slots.iter().copied().max().unwrap_or(0) as f64;
        let drawing =
            Drawing::counts(description, highest, vec![series("failed", grouped(total), "c4", columns)]);
        self.chart("failures", "Failed checkouts", self.per_slot(), Ok(drawing))
    }

    fn chart(
        &self,
        id: &'static str,
        title: &'static str,
        note: String,
        drawing: Result<Drawing, &'static str>,
    ) -> Chart {
        let drawing = if self.samples.is_empty() { Err("No samples were taken.") } else { drawing };
        let note = if drawing.is_err() { String::new() } else { note };
        Chart { id, title, note, drawing }
    }

    fn per_slot(&self) -> String {
        format!("in each {}", length(self.slots.length))
    }

    fn line(&self, value: impl Fn(&Sample) -> f64) -> Vec<Point> {
        let points: Vec<_> =
            self.samples.iter().map(|sample| (sample.at.as_secs_f64(), value(sample))).collect();
        downsample(&points)
    }

    /// Combines the samples of each slot.
    fn slot_values<T: Clone + Default>(&self, add: impl Fn(&mut T, &Sample)) -> Vec<T> {
        let mut values: Vec<T> = Vec::new();
        for sample in self.samples {
            let slot = self.slots.of(sample.at);
            if values.len() <= slot {
                values.resize(slot + 1, T::default());
            }
            add(&mut values[slot], sample);
        }
        values
    }

    /// A column for each slot, unless its height is zero.
    fn columns(&self, reaches: impl Iterator<Item = (f64, f64)>) -> Shape {
        let columns =
            reaches.enumerate().map(|(slot, reach)| Column { over: self.slots.bounds(slot), reach });
        Shape::Columns(columns.filter(|column| column.reach.0 < column.reach.1).collect())
    }
}

fn series(name: &str, total: String, colour: &'static str, shape: Shape) -> Series {
    Series { name: name.to_owned(), total, colour, shape }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, run};

    fn outcome() -> Outcome {
        let text = "{duration: 1m, services: [{name: it, targetReady: 3}]}";
        let scenario = Scenario::parse("short", text, &[]).expect("a scenario");
        run(&scenario, 1, &mut ()).expect("not interrupted")
    }

    fn legend(outcome: &Outcome) -> Vec<(String, &'static str, String)> {
        let drawing = RunCharts::new(outcome).discards().drawing;
        let series = drawing.map(|drawing| drawing.series).unwrap_or_default();
        series.into_iter().map(|series| (series.name, series.colour, series.total)).collect()
    }

    #[test]
    fn reasons_that_occurred_are_shown_most_frequent_first() {
        let mut outcome = outcome();
        assert_eq!(legend(&outcome), []);
        outcome.samples[10].discards[Discard::Bad.index()] = 2;
        outcome.samples[20].discards[Discard::Died.index()] = 1500;
        let expected = [("died", "c1", "1,500"), ("bad", "c2", "2")];
        let expected = expected.map(|(name, colour, total)| (name.to_owned(), colour, total.to_owned()));
        assert_eq!(legend(&outcome), expected);
    }

    #[test]
    fn more_reasons_than_colours_share_the_last() {
        let mut outcome = outcome();
        for (reason, count) in outcome.samples[10].discards.iter_mut().zip(1..) {
            *reason = count;
        }
        let legend = legend(&outcome);
        assert_eq!(legend.len(), REASONS.len() + 1);
        assert_eq!(legend[0].0, Discard::ALL[Discard::ALL.len() - 1].label());
        let (rest, count) = (&legend[REASONS.len()], Discard::ALL.len() - REASONS.len());
        let total = (1..=count).sum::<usize>().to_string();
        assert_eq!((rest.1, rest.2.clone(), rest.0.split(", ").count()), ("c8", total, count));
    }

    #[test]
    fn stacked_columns_stand_on_each_other() {
        let mut outcome = outcome();
        outcome.samples[10].discards[Discard::Bad.index()] = 2;
        outcome.samples[10].discards[Discard::Died.index()] = 3;
        let drawing = RunCharts::new(&outcome).discards().drawing.expect("something to draw");
        let reaches = drawing.series.iter().map(|series| match &series.shape {
            Shape::Columns(columns) => columns.iter().map(|column| column.reach).collect::<Vec<_>>(),
            Shape::Line(_) | Shape::Area(_) => Vec::new(),
        });
        assert_eq!(reaches.collect::<Vec<_>>(), [[(0.0, 3.0)], [(3.0, 5.0)]]);
    }
}
