//! The gateway against a local cluster, with clients of other projects.

#![allow(clippy::disallowed_methods, reason = "these tests talk to a real server over real sockets")]

mod elastic;
mod lifecycle;
mod manual;
mod npgsql;
mod replacement;
mod sessions;
mod slow_readers;
mod world;
