//! Connections and pools, against a local cluster.

mod cancellation;
mod cluster;
mod conformance;
mod death;
mod dirt;
mod disconnects;
mod doubt;
mod environment;
mod hooks;
pub(crate) mod logs;
mod lost;
mod members;
mod metrics;
mod modes;
mod nested;
mod opening;
mod opens;
mod patience;
mod raw;
mod recall;
mod schema;
mod standard;
mod status_page;
mod step;
mod storm;
mod trace;
mod world;
