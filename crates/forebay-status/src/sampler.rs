//! The task that reads all pools twice a second.

use std::sync::{Arc, Weak};

use forebay::Instant;
use forebay::rt::Runtime;

use crate::history::INTERVAL;
use crate::page::Shared;

/// Samples until the last handle to the page is gone.
pub(crate) async fn run(page: Weak<Shared>, runtime: Arc<dyn Runtime>) {
    let mut at = runtime.now();
    loop {
        at = next(at, runtime.now());
        runtime.sleep_until(at).await;
        let Some(page) = page.upgrade() else { return };
        page.sample();
        #[cfg(feature = "prometheus")]
        crate::prometheus::upkeep(runtime.now());
    }
}

/// The time of the sample after the one that was due at `last`. Samples that were missed are not repeated.
fn next(last: Instant, now: Instant) -> Instant {
    let at = last + INTERVAL;
    if at > now { at } else { now + INTERVAL }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn samples_keep_their_beat_and_do_not_pile_up() {
        let start = Instant::from_nanos(1_000_000_000);
        let late =
            |milliseconds| next(start, start + Duration::from_millis(milliseconds)).since(start).as_millis();
        assert_eq!([0, 100, 499, 500, 5_000].map(late), [500, 500, 500, 1_000, 5_500]);
    }
}
