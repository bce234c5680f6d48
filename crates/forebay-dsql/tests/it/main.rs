//! What the crate does, seen from outside.
#![allow(clippy::disallowed_methods, reason = "tests with real sockets run in real time")]

mod errors;
mod options;
mod parrot;
mod tokens;
mod transactions;
