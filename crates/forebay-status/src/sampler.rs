//! The task that reads all pools twice a second.

use std::sync::{Arc, Weak};

use forebay::Instant;
use forebay::rt::Runtime;

use crate::history::INTERVAL;
use crate::page::Shared;

/// The task. It ends with the last handle to the page, or with its runtime.
pub(crate) struct Sampler {
    page: Weak<Shared>,
    runtime: Arc<dyn Runtime>,
}

impl Sampler {
    pub(crate) fn new(page: &Arc<Shared>, runtime: Arc<dyn Runtime>) -> Self {
        Self { page: Arc::downgrade(page), runtime }
    }

    pub(crate) async fn run(self) {
        let mut at = self.runtime.now();
        loop {
            at = next(at, self.runtime.now());
            self.runtime.sleep_until(at).await;
            let Some(page) = self.page.upgrade() else { return };
            page.sample();
            #[cfg(feature = "prometheus")]
            crate::prometheus::upkeep(self.runtime.now());
        }
    }
}

/// A runtime that ends drops its tasks. The page can be served in another one.
impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some(page) = self.page.upgrade() {
            page.stopped();
        }
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

    use forebay::memory::Memory;
    use forebay::rt::VirtualTime;
    use forebay::{Config, Reservoir};
    use serde_json::Value;

    use super::*;
    use crate::StatusPage;

    fn status(page: &StatusPage) -> Value {
        serde_json::from_str(&page.status_json()).unwrap()
    }

    fn events(status: &Value) -> Vec<&str> {
        let events = status["events"].as_array().unwrap();
        events.iter().map(|event| event["text"].as_str().unwrap()).collect()
    }

    #[test]
    fn samples_follow_virtual_time() {
        let time = VirtualTime::new();
        let server = Memory::new(time.clone());
        let config = Config::default().max_open(20).rate(10.0, 20).startup_jitter(Duration::ZERO);
        let builder = Reservoir::builder(server.clone()).config(config).runtime(time.clone());
        let reservoir = time.run(builder.start()).unwrap();
        let page = StatusPage::new().runtime(time.clone());
        page.note("before the page has a clock");
        page.reservoir("orders", &reservoir);
        assert_eq!(status(&page)["tick"], 1, "the first one is taken at once");

        time.advance(Duration::from_secs(20));
        let quiet = status(&page);
        assert_eq!(quiet["tick"], 41);
        assert_eq!(quiet["process"]["uptime_seconds"], 20.0);
        assert_eq!(quiet["time"], 1_767_225_620.0);
        assert_eq!((&quiet["ready"], &quiet["pools"][0]["state"]), (&true.into(), &"full".into()));
        assert_eq!(events(&quiet), ["before the page has a clock"]);

        server.open_time(Duration::from_secs(3));
        server.kill_all();
        time.advance(Duration::from_secs(1));
        let incident = status(&page);
        assert_eq!(incident["pools"][0]["sentence"], "empty: opening 20 connections");
        assert_eq!(
            incident["pools"][0]["ages"]["ready"].as_array().unwrap().iter().filter(|bar| **bar != 0).count(),
            0
        );
        assert_eq!(incident["ready"], true, "a pool that was filled once stays ready");

        time.advance(Duration::from_secs(9));
        let over = status(&page);
        assert_eq!(
            events(&over),
            [
                "before the page has a clock",
                "20 connections died",
                "below the low watermark of 20: 0 of 20 usable",
                "opened 20 connections",
                "refilled after 2.5 s",
            ]
        );
        assert_eq!(over["pools"][0]["counters"]["discards"]["died"], 20);
        assert_eq!(over["pools"][0]["rates"]["opens_per_second_peak"], 20.0);

        drop(reservoir);
        time.advance(Duration::from_secs(1));
        assert_eq!(status(&page)["pools"][0]["state"], "closed");
        assert_eq!(events(&status(&page)).last(), Some(&"closed"));
        time.advance(Duration::from_secs(301));
        assert_eq!(status(&page)["pools"].as_array().unwrap().len(), 0, "it leaves with its history");
    }

    #[test]
    #[should_panic(expected = "deadlock: nothing can run and no timer is set")]
    fn the_sampler_ends_with_the_page() {
        let time = VirtualTime::new();
        let page = StatusPage::new().runtime(time.clone());
        drop(page.router());
        time.advance(Duration::from_secs(1));
        drop(page);
        time.advance(Duration::from_secs(1));
        // No timer is left that could end this.
        time.run(std::future::pending::<()>());
    }

    #[test]
    fn samples_keep_their_beat_and_do_not_pile_up() {
        let start = Instant::from_nanos(1_000_000_000);
        let late =
            |milliseconds| next(start, start + Duration::from_millis(milliseconds)).since(start).as_millis();
        assert_eq!([0, 100, 499, 500, 5_000].map(late), [500, 500, 500, 1_000, 5_500]);
    }
}
