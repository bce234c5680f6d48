//! The stores, against a local Aurora DSQL that runs real SQL.
#![allow(clippy::disallowed_methods, reason = "tests with real sockets run in real time")]

mod cancellation;
mod checker;
mod cluster;
mod clusters;
mod execution_parts;
mod executions;
mod histories;
mod matching_tasks;
mod namespaces;
mod nexus_endpoints;
mod overlap;
mod paging;
mod plugin;
mod queues;
mod round_trips;
mod schema_versions;
mod shards;
mod task_queues;
mod tasks;
mod transactions;
mod user_data;
mod workflows;
