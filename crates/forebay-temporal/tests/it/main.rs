//! The stores, against a local Aurora DSQL that runs real SQL.
#![allow(clippy::disallowed_methods, reason = "tests with real sockets run in real time")]

mod cluster;
mod shards;
