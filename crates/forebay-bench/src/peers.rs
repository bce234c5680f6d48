//! The contestants: this project, and the crates people use instead.
//!
//! Each peer gets its best settings: no check of a connection when it is lent, no lifetimes and no idle times to look
//! at, no timeouts where they can be left out, and room for all connections from the start. This project keeps its
//! defaults: it compares each connection with its deadline and counts what happens.

mod array_queue;
mod bb8;
mod deadpool_managed;
mod deadpool_unmanaged;
mod forebay;
mod mobc;
mod r2d2;

pub use self::array_queue::Queue;
pub use self::bb8::Bb8;
pub use self::deadpool_managed::{Deadpool, Numbered};
pub use self::deadpool_unmanaged::DeadpoolUnmanaged;
pub use self::forebay::{Forebay, ForebayWithMetrics, Plain};
pub use self::mobc::Mobc;
pub use self::r2d2::R2d2;

/// A pool's own way to say how many connections it may have.
fn as_u32(connections: usize) -> anyhow::Result<u32> {
    Ok(u32::try_from(connections)?)
}
