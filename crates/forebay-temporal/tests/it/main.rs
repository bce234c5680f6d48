//! The stores, against a local Aurora DSQL that runs real SQL.
#![allow(clippy::disallowed_methods, reason = "tests with real sockets run in real time")]

mod checker;
mod cluster;
mod execution_parts;
mod executions;
mod histories;
mod round_trips;
mod schema_versions;
mod shards;
mod tasks;
mod transactions;
mod workflows;
