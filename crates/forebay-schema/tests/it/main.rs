//! Migrations on a local Aurora DSQL.

mod cluster;
mod concurrency;
mod conformance;
mod dumps;
mod interruptions;
mod refusals;
mod setup;
