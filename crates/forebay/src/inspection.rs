//! Details of a reservoir that cost more than a [`Status`](crate::Status): each connection, and what the refill waits for.

use std::sync::Arc;
use std::time::Duration;

use crate::error::OpenError;
use crate::limit::Pace;

/// A usable connection, as [`Reservoir::connections`](crate::Reservoir::connections) lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// What happens with it now.
    pub phase: ConnectionPhase,
    /// The time since it was opened.
    pub age: Duration,
    /// The time until a replacement is opened. Zero if that is due. `None` if it is not replaced ahead.
    pub retires_in: Option<Duration>,
    /// The time until its guard window, in which it is not lent any more. `None` if lifetimes are not limited.
    pub stale_in: Option<Duration>,
    /// The time until the end of its life. `None` if lifetimes are not limited.
    pub expires_in: Option<Duration>,
}

/// What happens with a usable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionPhase {
    /// It can be lent at once.
    Ready,
    /// A caller has it.
    InUse,
    /// It is being reset or checked.
    InMaintenance,
}

/// What the refill does, and what it waits for. See [`Reservoir::refill_status`](crate::Reservoir::refill_status).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefillStatus {
    /// Connections that are missing, without those that are being opened.
    pub missing: usize,
    /// Opens that wait for [`Connect::prepare`](crate::Connect::prepare), such as for a token.
    pub waiting_for_token: usize,
    /// Opens that wait for a lease.
    pub waiting_for_lease: usize,
    /// Opens that wait for a permit of the limiter.
    pub waiting_for_permit: usize,
    /// How long no open starts, because opens failed or because the server asked for fewer. `None` if they may start now.
    pub paused_for: Option<Duration>,
    /// The share of the limiter's rate that is used, from 0 to 1. It is below 1 after the server reported overload.
    pub rate_share: f64,
    /// The rate that the limiter permits.
    pub pace: Pace,
    /// What the limiter is called: [`Limit::name`](crate::Limit::name).
    pub limiter: &'static str,
    /// The last failed open, if none has succeeded since.
    pub last_failure: Option<Arc<OpenError>>,
}
