//! What a subcommand found: goals, the numbers behind them, and what a reader must know about them.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::race::Figures;

/// One goal, and whether it was reached.
#[derive(Clone, Debug, PartialEq)]
struct Goal {
    name: String,
    /// `None` if it could not be measured.
    value: Option<f64>,
    bound: Bound,
    /// The unit of value and bound.
    unit: &'static str,
}

/// Which values reach a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::AtMost(bound) => write!(f, "<= {bound}"),
        }
    }
}

impl Goal {
    /// A goal without a value is missed.
    fn is_reached(&self) -> bool {
        self.value.is_some_and(|value| match self.bound {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        })
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "goal": self.bound.to_string(),
            "unit": self.unit,
            "ok": self.is_reached(),
        })
    }
}

/// A measured value: a number, or `None` where it could not be measured.
pub(crate) trait Measured {
    fn value(self) -> Option<f64>;
}

impl Measured for Option<f64> {
    fn value(self) -> Option<f64> {
        self
    }
}

macro_rules! measured {
    ($($number:ty),*) => {$(
        impl Measured for $number {
            fn value(self) -> Option<f64> {
                Some(self as f64)
            }
        }
    )*};
}
measured!(f64, u32, u64, usize);

/// One measurement of all contestants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) name: String,
    unit: &'static str,
    /// One row for each contestant.
    pub(crate) rows: Vec<Figures>,
}

impl Table {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, rows: Vec<Figures>) -> Self {
        Self { name: name.into(), unit, rows }
    }

    /// The median of the contestant `name`.
    pub(crate) fn median(&self, name: &str) -> anyhow::Result<f64> {
        let row = self.rows.iter().find(|row| row.name == name);
        row.map(|row| row.median).ok_or_else(|| anyhow::anyhow!("{name} took no part in {}", self.name))
    }

    /// The median of `ours` over the median of `peer`.
    pub(crate) fn ratio(&self, ours: &str, peer: &str) -> anyhow::Result<f64> {
        Ok(self.median(ours)? / self.median(peer)?)
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "name": row.name, "median": row.median, "min": row.min, "max": row.max, "rounds": row.rounds,
            })
        });
        json!({ "name": self.name, "unit": self.unit, "contestants": rows.collect::<Value>() })
    }
}

/// All that a subcommand found.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The subcommand.
    name: &'static str,
    pub(crate) machine: Machine,
    goals: Vec<Goal>,
    /// The numbers behind the goals.
    pub(crate) tables: Vec<Table>,
    /// What a reader must know.
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// An empty report. It records how busy the machine is now, at the start.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, machine: Machine::look(), goals: Vec::new(), tables: Vec::new(), notes: Vec::new() }
    }

    fn goal(&mut self, name: impl Into<String>, value: impl Measured, bound: Bound, unit: &'static str) {
        self.goals.push(Goal { name: name.into(), value: value.value(), bound, unit });
    }

    /// Adds a goal that is reached by `bound` and less.
    pub(crate) fn at_most(
        &mut self,
        name: impl Into<String>,
        value: impl Measured,
        bound: f64,
        unit: &'static str,
    ) {
        self.goal(name, value, Bound::AtMost(bound), unit);
    }

    /// Adds a goal that is reached by `bound` and more.
    pub(crate) fn at_least(
        &mut self,
        name: impl Into<String>,
        value: impl Measured,
        bound: f64,
        unit: &'static str,
    ) {
        self.goal(name, value, Bound::AtLeast(bound), unit);
    }

    pub(crate) fn table(&mut self, name: impl Into<String>, unit: &'static str, rows: Vec<Figures>) {
        self.tables.push(Table::new(name, unit, rows));
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The report as one JSON object.
    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "goals": self.goals.iter().map(Goal::json).collect::<Value>(),
            "tables": self.tables.iter().map(Table::json).collect::<Value>(),
            "notes": self.notes,
            "machine": self.machine.json(),
        })
    }

    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let mut grid = Grid::new(&["", "median", "min", "max", "rounds"]);
            for row in &table.rows {
                let [median, min, max] = [row.median, row.min, row.max].map(number);
                grid.0.push(vec![row.name.clone(), median, min, max, row.rounds.to_string()]);
            }
            line(&mut text, format_args!("{} [{}]\n{grid}", table.name, table.unit));
        }
        let mut grid = Grid::new(&["what", "measured", "goal", "", ""]);
        for goal in &self.goals {
            let value = goal.value.map_or_else(|| "-".to_owned(), number);
            let verdict = if goal.is_reached() { "ok" } else { "MISSED" };
            let cells: [&str; 5] = [&goal.name, &value, &goal.bound.to_string(), goal.unit, verdict];
            grid.0.push(cells.map(str::to_owned).to_vec());
        }
        line(&mut text, format_args!("{grid}"));
        for note in &self.notes {
            line(&mut text, format_args!("- {note}"));
        }
        line(&mut text, format_args!("- {}", self.machine));
        text
    }
}

fn line(text: &mut String, what: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let (Ok(()) | Err(_)) = writeln!(text, "{what}");
}

/// About three digits: more would be noise.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 || (v >= 10.0 && v.fract() == 0.0) => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Cells in columns: the first column is aligned to the left, the others to the right.
struct Grid(Vec<Vec<String>>);

impl Grid {
    fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&cell| cell.to_owned()).collect()])
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.0 {
            f.write_char(' ')?;
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 { write!(f, " {cell:<width$}")? } else { write!(f, "  {cell:>width$}")? }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_reached_at_its_bound_and_missed_without_a_value() {
        let is_reached =
            |value, bound| Goal { name: "a".to_owned(), value, bound, unit: "times" }.is_reached();
        assert!(is_reached(Some(2.5), Bound::AtLeast(2.5)));
        assert!(!is_reached(Some(2.49), Bound::AtLeast(2.5)));
        assert!(is_reached(Some(130.0), Bound::AtMost(130.0)));
        assert!(!is_reached(Some(131.0), Bound::AtMost(130.0)));
        assert!(!is_reached(None, Bound::AtMost(130.0)));
        assert!(!is_reached(Some(f64::NAN), Bound::AtMost(130.0)));
    }

    #[test]
    fn a_report_is_one_object_with_its_goals() {
        let mut report = Report::new("trial");
        report.at_most("missing", None, 1.0, "us");
        report.at_least("there", 3.0, 2.5, "times");
        let json = report.json();
        assert_eq!(
            json["goals"][0],
            json!({"name": "missing", "value": null, "goal": "<= 1", "unit": "us", "ok": false})
        );
        assert_eq!(json["goals"][1]["goal"], ">= 2.5");
        let text = report.text();
        assert!(text.contains("MISSED") && text.contains("3.00"), "{text}");
    }

    #[test]
    fn numbers_have_about_three_digits() {
        let shown = [0.0, 0.01234, 1.5, 16.0, 36.44, 229.04, 123_456.7].map(number);
        assert_eq!(shown, ["0.00", "0.0123", "1.50", "16", "36.44", "229.0", "123457"]);
    }
}
