//! Migrations on a local Aurora DSQL.

mod cluster;
mod concurrency;
mod dumps;
mod interruptions;
mod refusals;
mod setup;
