//! Breaks the reservoir on purpose, so that a simulator can show that it would notice.
//!
//! Without `--cfg forebay_sabotage`, which is for tests only, nothing here has an effect.

/// What can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Connections are handed out to the very end of their lives.
    GuardWindow,
    /// What is lent does not count towards what may be owned.
    Bound,
    /// The last to come is the first to be served.
    FirstComeFirstServed,
    /// Retirements are not spread.
    RetirementSchedule,
    /// Leases are not given back.
    LeaseRelease,
}

#[cfg(forebay_sabotage)]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Breaks this, on this thread, while `run` runs.
#[cfg(forebay_sabotage)]
pub fn during<R>(what: Sabotage, run: impl FnOnce() -> R) -> R {
    PRESENT.set(Some(what));
    let output = run();
    PRESENT.set(None);
    output
}

/// Whether this is broken.
#[inline(always)]
pub(crate) fn is_on(what: Sabotage) -> bool {
    #[cfg(forebay_sabotage)]
    return PRESENT.get() == Some(what);
    #[cfg(not(forebay_sabotage))]
    {
        let _ = what;
        false
    }
}
