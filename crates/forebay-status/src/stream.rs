//! Server-sent events: the whole status at first, then one message for each sample.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay::rt::{self, Runtime};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::board::Board;
use crate::document;
use crate::page::{Message, STREAMS, Shared};

/// A comment is sent after this time without a message, so that proxies keep the stream open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a browser waits before it connects again.
const RETRY: &str = "retry: 1000\n\n";

/// One reader. It holds the last message only: a slow reader skips samples, and does not grow memory.
struct Reader {
    page: Arc<Shared>,
    runtime: Arc<dyn Runtime>,
    messages: watch::Receiver<Message>,
    /// The number of the sample that was sent last. `None` before the first message.
    sent: Option<u64>,
    _permit: OwnedSemaphorePermit,
}

/// Answers `/events`.
pub(crate) fn respond(page: Arc<Shared>, runtime: Arc<dyn Runtime>) -> Response {
    let Ok(permit) = Arc::clone(&page.streams).try_acquire_owned() else {
        let text = format!("{STREAMS} event streams are open, and that is the limit: close some pages\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let reader = Reader::new(page, runtime, permit);
    let body = Body::from_stream(stream::unfold(reader, |mut reader| async {
        reader.next().await.map(|bytes| (Ok::<_, Infallible>(bytes), reader))
    }));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

impl Reader {
    fn new(page: Arc<Shared>, runtime: Arc<dyn Runtime>, permit: OwnedSemaphorePermit) -> Self {
        Self { messages: page.messages(), page, runtime, sent: None, _permit: permit }
    }

    /// The next bytes for the reader. `None` at the end. Cancel safe: nothing is marked as sent before it is
    /// returned.
    async fn next(&mut self) -> Option<Bytes> {
        if self.sent.is_none() {
            self.messages.mark_unchanged();
            if matches!(*self.messages.borrow(), Message::Closed) {
                return None;
            }
            return Some(self.whole(RETRY));
        }
        loop {
            let Some(changed) = rt::within(&*self.runtime, KEEP_ALIVE, self.messages.changed()).await else {
                return Some(Bytes::from_static(b": still here\n\n"));
            };
            // Nobody can send any more: the page is gone.
            changed.ok()?;
            let message = self.messages.borrow_and_update().clone();
            let sent = self.sent.unwrap_or_default();
            match message {
                Message::Closed => return None,
                Message::Sample(number, bytes) if number == sent + 1 => {
                    self.sent = Some(number);
                    return Some(bytes);
                }
                // Samples were skipped, with their events.
                Message::Sample(number, _) if number > sent => return Some(self.whole("")),
                Message::Sample(..) | Message::None => {}
            }
        }
    }

    fn whole(&mut self, before: &str) -> Bytes {
        let (number, text) = self
            .page
            .with_connections(|board| (board.tick, frame("whole", board.tick, &document::whole(board))));
        self.sent = Some(number);
        format!("{before}{text}").into()
    }
}

/// The message for all readers after a sample.
pub(crate) fn sample(board: &Board) -> Message {
    Message::Sample(board.tick, frame("sample", board.tick, &document::sample(board)).into())
}

/// One event. JSON has no line breaks, so its data is one line.
fn frame(event: &str, id: u64, data: &Value) -> String {
    format!("event: {event}\nid: {id}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use forebay::memory::Memory;
    use forebay::rt::VirtualTime;
    use forebay::{Config, ConnectionStatus, Reservoir, WeakReservoir};
    use serde_json::json;

    use super::*;
    use crate::{PoolSnapshot, PoolSource, StatusPage};

    /// A reservoir that counts how often its connections are listed.
    struct Counting(WeakReservoir<Memory>, Arc<AtomicU64>);

    impl PoolSource for Counting {
        fn snapshot(&self) -> Option<PoolSnapshot> {
            self.0.snapshot()
        }

        fn connections(&self) -> Vec<ConnectionStatus> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.connections()
        }
    }

    fn reader(page: &StatusPage, time: &VirtualTime) -> Reader {
        let permit = Arc::clone(&page.shared.streams).try_acquire_owned().unwrap();
        let runtime = page.shared.start().unwrap();
        assert_eq!(runtime.now(), time.now());
        Reader::new(Arc::clone(&page.shared), runtime, permit)
    }

    /// The first line of the next event, and its number.
    fn next(reader: &mut Reader, time: &VirtualTime) -> (String, u64) {
        let bytes = time.run(reader.next()).unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("retry"));
        let event = lines.next().unwrap().to_owned();
        (event, lines.next().map(|line| line["id: ".len()..].parse().unwrap()).unwrap_or_default())
    }

    #[test]
    fn a_slow_reader_skips_samples_and_gets_the_whole_again() {
        let time = VirtualTime::new();
        let page = StatusPage::new().runtime(time.clone());
        let mut reader = reader(&page, &time);
        assert_eq!(next(&mut reader, &time), ("event: whole".into(), 1));
        assert_eq!(next(&mut reader, &time), ("event: sample".into(), 2));
        assert_eq!(next(&mut reader, &time), ("event: sample".into(), 3));
        time.advance(Duration::from_secs(60));
        assert_eq!(next(&mut reader, &time), ("event: whole".into(), 123), "only the last one was kept");
        assert_eq!(next(&mut reader, &time), ("event: sample".into(), 124));
        page.close();
        assert_eq!(time.run(reader.next()), None);
    }

    #[test]
    fn a_cancelled_wait_loses_no_sample() {
        let time = VirtualTime::new();
        let page = StatusPage::new().runtime(time.clone());
        let mut reader = reader(&page, &time);
        next(&mut reader, &time);
        for _ in 0..3 {
            let mut waiting = Box::pin(reader.next());
            let polled = waiting.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            assert!(polled.is_pending());
        }
        assert_eq!(next(&mut reader, &time), ("event: sample".into(), 2));
    }

    #[test]
    fn connections_are_listed_only_while_somebody_looks() {
        let time = VirtualTime::new();
        let config = Config::default().max_open(3).startup_jitter(Duration::ZERO);
        let builder = Reservoir::builder(Memory::new(time.clone())).config(config).runtime(time.clone());
        let reservoir = time.run(builder.start()).unwrap();
        let lists = Arc::new(AtomicU64::new(0));
        let page = StatusPage::new().runtime(time.clone());
        page.pool("orders", Counting(reservoir.downgrade(), Arc::clone(&lists)));
        drop(page.router());
        let listed_in = |seconds| {
            time.advance(Duration::from_secs(seconds));
            lists.swap(0, Ordering::Relaxed)
        };
        assert_eq!(listed_in(10), 0);
        let reader = reader(&page, &time);
        assert_eq!(listed_in(10), 20);
        drop(reader);
        assert_eq!(listed_in(10), 0);
        assert!(page.status_json().contains("orders"));
        assert_eq!(listed_in(10), 1);
    }

    #[test]
    fn an_event_is_one_line_of_data() {
        let data = json!({"text": "two\nlines\r and an end\n\n", "event": "event: x"});
        let framed = frame("sample", 7, &data);
        assert_eq!(
            framed,
            "event: sample\nid: 7\ndata: {\"event\":\"event: x\",\"text\":\"two\\nlines\\r and an end\\n\\n\"}\n\n"
        );
    }
}
