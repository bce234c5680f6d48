//! The gateway against a local cluster, with clients of other projects.

#![allow(clippy::disallowed_methods, reason = "these tests talk to a real server over real sockets")]

mod cancel;
mod cancellation;
mod elastic;
mod handover;
mod hang_up;
mod lifecycle;
mod login;
mod manual;
mod npgsql;
mod reload;
mod replacement;
mod schema_changes;
mod sessions;
mod slow_readers;
mod world;
