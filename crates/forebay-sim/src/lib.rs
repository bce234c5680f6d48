#![doc = include_str!("../README.md")]

mod callers;
mod date;
mod director;
mod events;
mod fleet;
mod html_report;
mod judge;
mod latency;
mod outcome;
mod replay;
mod row;
mod run;
mod samples;
pub mod scenario;
mod seeds;
mod trace;
mod world;

pub use date::rfc3339;
pub use html_report::html_report;
pub use judge::{Assertion, Recovery, Verdict};
pub use latency::Latency;
pub use outcome::{Outcome, Totals, Waits, grouped};
pub use replay::shell_word;
pub use row::Row;
pub use run::{RunObserver, run};
pub use samples::{Sample, TableBill};
pub use scenario::{Scenario, ScenarioError, Shipped, shipped};
pub use seeds::{FailedSeed, SeedReport, Worst, run_seeds};
