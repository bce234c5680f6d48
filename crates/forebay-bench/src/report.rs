//! What a subcommand found: goals, the figures behind them, and what must be known to read them.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::race::Figures;

/// One thing that was aimed for.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// What it is; it explains itself.
    pub name: String,
    /// What was measured; none if it could not be.
    pub value: Option<f64>,
    /// What was aimed for.
    pub goal: Bound,
    /// The unit of both.
    pub unit: &'static str,
    /// Whether it was reached.
    pub ok: bool,
}

/// Which values reach a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
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
    /// A goal, and whether `value` reaches it. What could not be measured does not.
    pub fn new(
        name: impl Into<String>,
        value: impl Into<Option<f64>>,
        goal: Bound,
        unit: &'static str,
    ) -> Self {
        let value = value.into();
        Self { name: name.into(), value, goal, unit, ok: value.is_some_and(|value| goal.holds(value)) }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "goal": self.goal.to_string(),
            "unit": self.unit,
            "ok": self.ok,
        })
    }
}

/// One measurement of all contestants.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What was measured.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Who achieved what.
    pub rows: Vec<Figures>,
}

impl Table {
    /// What `name` achieved, at the median.
    ///
    /// # Errors
    /// If it did not take part.
    pub fn median(&self, name: &str) -> anyhow::Result<f64> {
        let row = self.rows.iter().find(|row| row.name == name);
        row.map(|row| row.median).ok_or_else(|| anyhow::anyhow!("{name} took no part in {}", self.name))
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
pub struct Report {
    /// The subcommand.
    pub name: &'static str,
    /// Where it was measured, and when.
    pub machine: Machine,
    /// What was aimed for.
    pub goals: Vec<Goal>,
    /// The figures behind the goals.
    pub tables: Vec<Table>,
    /// What must be known to read them.
    pub notes: Vec<String>,
}

impl Report {
    /// An empty report. The machine is looked at now, for how busy it was at the start.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, machine: Machine::look(), goals: Vec::new(), tables: Vec::new(), notes: Vec::new() }
    }

    /// Adds a goal.
    pub fn goal(
        &mut self,
        name: impl Into<String>,
        value: impl Into<Option<f64>>,
        goal: Bound,
        unit: &'static str,
    ) {
        self.goals.push(Goal::new(name, value, goal, unit));
    }

    /// Adds something that must be known.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The whole as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "goals": self.goals.iter().map(Goal::json).collect::<Value>(),
            "tables": self.tables.iter().map(Table::json).collect::<Value>(),
            "notes": self.notes,
            "machine": self.machine.json(),
        })
    }

    /// The whole for a reader.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let mut grid = Grid::new(&["", "median", "min", "max", "rounds"]);
            for row in &table.rows {
                let Figures { name, median, min, max, rounds } = row;
                let numbers = [*median, *min, *max].map(number);
                let mut cells = vec![name.clone()];
                cells.extend(numbers);
                cells.push(rounds.to_string());
                grid.row(cells);
            }
            line(&mut text, format_args!("{} [{}]\n{grid}", table.name, table.unit));
        }
        let mut grid = Grid::new(&["goal", "measured", "aim", "", ""]);
        for goal in &self.goals {
            let value = goal.value.map_or_else(|| "-".to_owned(), number);
            let verdict = if goal.ok { "ok" } else { "MISSED" };
            let aim = goal.goal.to_string();
            grid.row(vec![goal.name.clone(), value, aim, goal.unit.to_owned(), verdict.to_owned()]);
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

/// Three digits or so: more would be noise.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 || (v >= 10.0 && v.fract() == 0.0) => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Cells in columns; the first is text, the others are aligned to the right.
struct Grid(Vec<Vec<String>>);

impl Grid {
    fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&cell| cell.to_owned()).collect()])
    }

    fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
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
        assert!(Goal::new("a", 2.5, Bound::AtLeast(2.5), "times").ok);
        assert!(!Goal::new("a", 2.49, Bound::AtLeast(2.5), "times").ok);
        assert!(Goal::new("a", 130.0, Bound::AtMost(130.0), "instructions").ok);
        assert!(!Goal::new("a", 131.0, Bound::AtMost(130.0), "instructions").ok);
        assert!(!Goal::new("a", None, Bound::AtMost(130.0), "instructions").ok);
        assert!(!Goal::new("a", f64::NAN, Bound::AtMost(130.0), "instructions").ok);
    }

    #[test]
    fn a_report_is_one_object_with_its_goals() {
        let mut report = Report::new("trial");
        report.goal("missing", None, Bound::AtMost(1.0), "us");
        report.goal("there", 3.0, Bound::AtLeast(2.5), "times");
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
    fn numbers_are_as_long_as_they_need_to_be() {
        let shown = [0.0, 0.01234, 1.5, 16.0, 36.44, 229.04, 123_456.7].map(number);
        assert_eq!(shown, ["0.00", "0.0123", "1.50", "16", "36.44", "229.0", "123457"]);
    }
}
