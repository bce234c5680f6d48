//! The model test: clients whose backends are replaced at random see exactly what they would see on one connection.
//!
//! Two clients share a few backends, so that each finds what the other has left. Each has an oracle: a model of a PostgreSQL session that is its
//! alone. Input is split at random, or at every byte; answers are late; backends are taken away, exchanged and cut whenever that is allowed.
//! A failure prints its seed and a script that was made as short as possible.
//!
//! ```text
//!  search   seeds, and the shortest script that fails
//!    └▶ play   two clients, script by script
//!         ├▶ replacement   disturbs a session only when that is allowed; the oracle is `server`
//!         └▶ faults        cuts, cancels and refuses at any time; `judge` knows what the client may be told
//! ```

mod faults;
mod judge;
mod own_change;
mod play;
mod replacement;
mod script;
mod search;
mod server;
mod statement;

pub(super) use self::script::{Event, script};
pub(super) use self::server::{ModelServer, REPORTED, World};

use super::Memory;

/// A backend in the pool.
struct Backend {
    model: ModelServer,
    memory: Memory,
}

const STARTS: [&[(&str, &str)]; 4] = [
    &[],
    &[("application_name", "one"), ("client_min_messages", "warning")],
    &[("application_name", "two"), ("TimeZone", "Europe/Paris"), ("search_path", "x")],
    &[("extra_float_digits", "3"), ("application_name", "one")],
];
