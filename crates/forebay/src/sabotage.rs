//! Breaks the reservoir on purpose, to show that the simulator notices it.
//!
//! It has no effect without `--cfg forebay_sabotage`, which only tests set.

/// What to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Connections are lent until the end of their lifetimes.
    GuardWindow,
    /// Lent connections do not count towards `max_open`.
    Bound,
    /// The last caller is served first.
    FirstComeFirstServed,
    /// Retirements are not spread.
    RetirementSchedule,
    /// Leases are not released.
    LeaseRelease,
}

#[cfg(forebay_sabotage)]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Runs `run` with one thing broken on this thread.
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
