//! The emulator as clients see it.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests drive real sockets with tokio's own tools"
)]

mod admission;
mod conflicts;
mod conformance;
mod control;
mod copy;
mod engine;
mod expiry;
mod faults;
mod harness;
mod history;
mod hostile;
mod jobs;
mod postgres;
mod protocol;
mod roles;
mod seam;
mod sql;
mod tokens;
