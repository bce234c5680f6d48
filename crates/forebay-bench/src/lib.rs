//! Measures this project and its peers, side by side in one run.
//!
//! Each subcommand of the program measures one part of the project and returns a `Report`. The code is a
//! library, so that `forebay-bench-allocations`, which counts allocations, shares it.

mod allocations;
mod checkout;
mod cli;
mod clock;
mod coordination;
mod dsql;
mod dsql_local;
mod dynamo;
mod fleet_processes;
mod flight;
mod flight_cancel;
mod history;
mod instructions;
mod machine;
mod peers;
mod process;
mod race;
mod report;
mod section;
mod sim;
mod twin_tables;

pub use allocations::count_allocations;
pub use cli::run;

/// The README, so that its examples are compiled and run. It is here because this crate depends on all of
/// them.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
