//! The stores, against a local Aurora DSQL that runs real SQL.
#![allow(clippy::disallowed_methods, reason = "tests with real sockets run in real time")]

mod cluster;
mod clusters;
mod namespaces;
mod nexus_endpoints;
mod paging;
mod queues;
mod shards;
mod task_queues;
mod tasks;
mod user_data;
