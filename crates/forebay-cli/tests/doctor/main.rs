//! `forebay doctor` before healthy and broken setups: a local cluster, a DynamoDB in this process, and servers made for
//! the purpose.
#![allow(clippy::disallowed_methods, reason = "servers made for a test run on threads of their own")]

mod command;
mod faults;
mod healthy;
mod page;
mod place;
mod proxy;
mod running_service;
#[allow(dead_code, reason = "the tests of `lease` and `limiter` use more of it")]
#[path = "../fleet/server.rs"]
mod server;
mod status_page;
mod tls_server;
