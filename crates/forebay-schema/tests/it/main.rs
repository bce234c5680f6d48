//! Migrations on a local Aurora DSQL.
#![allow(clippy::disallowed_methods, reason = "tests run on tokio")]

mod cluster;
mod concurrency;
mod conformance;
mod dumps;
mod interruptions;
mod refusals;
mod setup;
