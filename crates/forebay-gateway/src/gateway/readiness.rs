//! Whether new clients should come to a gateway.

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::shared::Shared;

/// Tells whether new clients should come to a gateway. It does not keep the gateway running.
#[derive(Clone)]
pub struct Readiness(pub(super) Weak<Shared>);

impl Readiness {
    /// Why not, in words for an operator. Empty if they should.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let Some(shared) = self.0.upgrade() else { return vec!["the gateway has ended".to_owned()] };
        let mut reasons = Vec::new();
        if shared.leaving.load(Ordering::Relaxed) {
            reasons.push("the gateway is draining".to_owned());
        }
        // If one role works, the gateway is worth its clients.
        if shared.pools.lock().active.values().all(|backends| backends.pool().status().open == 0) {
            reasons.push("no role has a connection to the cluster".to_owned());
        }
        reasons
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.reasons()).finish()
    }
}
