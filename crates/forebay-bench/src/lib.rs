//! Measures this project and its peers, side by side in one run.
//!
//! Each subcommand of the program measures one part of the project and returns a `Report`. The code is a
//! library, so that `forebay-bench-allocations`, which counts allocations, shares it.
//!
//! The feature `all`, which is on by default, builds all of them. `flight` builds `flight` and `flight-cancel`, `gateway` builds
//! `gateway`, `temporal` builds `temporal`: each in a fraction of the time.
#![cfg_attr(
    not(feature = "all"),
    allow(dead_code, reason = "some of what the benchmarks share is for the others")
)]

#[cfg(feature = "all")]
mod allocations;
#[cfg(feature = "all")]
mod checkout;
mod cli;
mod clock;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "all")]
mod coordination;
#[cfg(feature = "all")]
mod dsql;
#[cfg(feature = "all")]
mod dsql_local;
#[cfg(feature = "all")]
mod dynamo;
#[cfg(feature = "all")]
mod fleet_processes;
#[cfg(feature = "flight")]
mod flight;
#[cfg(feature = "flight")]
mod flight_cancel;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(feature = "all")]
mod history;
#[cfg(feature = "all")]
mod instructions;
mod machine;
#[cfg(feature = "all")]
mod peers;
#[cfg(feature = "gateway")]
mod postgres;
mod process;
mod race;
mod report;
mod section;
#[cfg(feature = "all")]
mod sim;
#[cfg(feature = "temporal")]
mod temporal;
#[cfg(feature = "gateway")]
mod tls;
#[cfg(feature = "all")]
mod twin_tables;
#[cfg(feature = "gateway")]
mod unprivileged;

#[cfg(feature = "all")]
pub use allocations::count_allocations;
pub use cli::run;

/// The README, so that its examples are compiled and run. It is here because this crate depends on all of
/// them.
#[cfg(all(doctest, feature = "all"))]
#[doc = include_str!("../../../README.md")]
mod readme {}
