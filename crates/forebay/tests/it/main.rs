//! Tests through the public API, mostly under virtual time: one module for each behaviour.

mod support;

mod adapters;
mod blocking;
mod cancellation;
mod checks;
mod dead_peer;
mod denial;
mod drain;
mod extra_opens;
mod faults;
mod fleet_phase;
mod histories;
mod inspection;
mod leases;
mod lifetimes;
mod logs;
mod metrics;
mod paused_clock;
mod recall;
mod refill;
mod requirements;
mod unanswered;
mod waiting;
