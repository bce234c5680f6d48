//! Migrations on a local Aurora DSQL.

mod cluster;
mod setup;
