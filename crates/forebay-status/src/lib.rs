//! A live status page, health endpoints and Prometheus metrics for `forebay` pools.
//!
//! A pool that is short of connections raises two questions: what does it do, and why? The page answers both
//! in a sentence for each pool, such as "refilling at 8/s, limited by the fleet's bucket; 14 s to target". Below
//! it are charts of the last five minutes, the ages of the connections, and recent events.
//!
//! ```text
//!   pools                     the page                                       who reads it
//!  ───────  twice a second  ┌──────────────────────────────────┐
//!  snapshot ───────────────▶│ sampler ─▶ board ─▶ document     │──▶ /  /events        people
//!                           │            history, events       │──▶ /status.json      tools
//!                           │                                  │──▶ /metrics          Prometheus
//!                           └──────────────────────────────────┘──▶ /healthz /readyz  orchestrators
//! ```
//!
//! - [`StatusPage::reservoir`] adds any [`Reservoir`](forebay::Reservoir). A [`PoolSource`] adds what a reservoir
//!   does not know, such as leases and tokens.
//! - [`StatusPage::serve`] serves the page at an address of its own. [`StatusPage::router`] mounts it in an axum
//!   service.
//! - Events are derived from the differences between samples. The pools call nothing, so callers pay nothing.
//! - [`prometheus()`] (feature `prometheus`, on by default) records metrics with the right buckets.
//!
//! The example of [`StatusPage`] runs as it is. The repository's `docs/status-page.md` is the manual.

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

#[cfg(all(doctest, feature = "prometheus"))]
mod manual {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/status-page.md")]
    mod status_page {}
}
