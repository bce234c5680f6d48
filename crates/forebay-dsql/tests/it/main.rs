//! What the crate does, seen from outside.
#![allow(clippy::disallowed_methods, reason = "tests with real sockets run in real time")]

mod bank;
mod cas;
mod desk;
mod errors;
mod exactness;
mod fake;
mod hot_row;
mod ids;
mod manual;
mod options;
mod parrot;
mod plain;
mod pools;
mod settings;
mod token_histories;
mod tokens;
mod transactions;
