//! File descriptors: each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows as many as this process may have. If that is fewer than are `needed`: how many there are.
pub(crate) fn raise(needed: u64) -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Only the hard limit counts, whether or not the soft limit could be raised to it.
    let (Ok(()) | Err(_)) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    maximum.filter(|maximum| *maximum < needed)
}
