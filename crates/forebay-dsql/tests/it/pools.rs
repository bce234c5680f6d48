//! Connections and pools, against a local cluster.

mod cancellation;
mod cluster;
mod conformance;
mod death;
mod dirt;
mod logs;
mod members;
mod metrics;
mod modes;
mod opening;
mod recall;
mod standard;
mod storm;
mod world;
