//! A live status page, health endpoints and Prometheus metrics for `forebay` pools.

mod access;
mod ages;
mod assets;
mod board;
mod change;
mod connection;
mod document;
mod event_log;
mod headers;
mod history;
mod listen;
mod page;
#[cfg(feature = "prometheus")]
mod prometheus;
mod router;
mod sample;
mod sampler;
mod sentence;
mod server;
mod source;
mod stream;
mod token;
mod tracker;
mod words;

pub use listen::{InvalidListen, Listen};
pub use page::StatusPage;
#[cfg(feature = "prometheus")]
pub use prometheus::{PrometheusError, prometheus};
pub use server::{ServeError, Server};
pub use source::{FleetSnapshot, PoolSnapshot, PoolSource, TokenSnapshot};
pub use token::{InvalidToken, Token};
