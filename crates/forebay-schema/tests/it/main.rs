//! Migrations on a local Aurora DSQL.

mod cluster;
mod concurrency;
mod interruptions;
mod refusals;
mod setup;
