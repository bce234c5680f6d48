//! Measures this project and its peers, side by side in one run.
//!
//! Each subcommand of the program measures one part of the project and makes a [`Report`](report::Report) of it. The
//! measuring itself is here and not in `main.rs`, so that the program that counts allocations can share it.

pub mod allocations;
pub mod checkout;
pub mod clock;
pub mod coordination;
pub mod dsql;
pub mod dsql_local;
mod dynamo;
pub mod fleet_processes;
pub mod flight;
pub mod flight_cancel;
pub mod instructions;
pub mod machine;
pub mod peers;
pub mod pool;
pub mod race;
pub mod report;
pub mod sim;
pub mod twin_tables;

/// The first page, so that what it shows is compiled and run: here, because this crate depends on all that it shows.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
