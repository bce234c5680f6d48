//! What operators get, tried on running services: the runbooks, the dashboards, the alerts and the deployment files.
#![allow(clippy::disallowed_methods, reason = "services and Prometheus run in real time, as processes")]

mod dashboards;
mod deployment;
mod mentions;
mod page;
mod process;
mod prometheus;
mod promql;
mod runbooks;
mod scene;
#[allow(dead_code, reason = "the tests of `lease` and `limiter` use more of it")]
#[path = "../fleet/server.rs"]
mod server;
mod service;
