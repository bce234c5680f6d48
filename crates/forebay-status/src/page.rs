//! The public handle.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use forebay::rt::{self, NoRuntime, Runtime};
use forebay::{Connect, Reservoir};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::board::{Board, Now, Reading};
use crate::listen::Listen;
use crate::sampler::Sampler;
use crate::server::{ServeError, Server};
use crate::source::PoolSource;
use crate::{document, router, server, stream};

/// How many event streams a page serves at a time.
pub(crate) const STREAMS: usize = 64;

/// A live page about the pools of a process. Clones are handles to the same page.
///
/// ```
/// # use std::time::Duration;
/// # use forebay::{Config, Connect, ConnectionMonitor, OpenError, Reservoir};
/// # struct Greeter;
/// # impl Connect for Greeter {
/// #     type Connection = String;
/// #     async fn open(&self, _monitor: ConnectionMonitor) -> Result<String, OpenError> {
/// #         Ok("hello".to_owned())
/// #     }
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let config = Config::default().startup_jitter(Duration::ZERO);
/// use forebay_status::StatusPage;
///
/// let reservoir = Reservoir::builder(Greeter).config(config).start().await?;
/// let page = StatusPage::new();
/// page.reservoir("greeter", &reservoir);
/// let server = page.serve("127.0.0.1:0".parse()?).await?;
/// println!("http://{}/", server.address());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StatusPage {
    pub(crate) shared: Arc<Shared>,
}

/// Renders the metrics of the process.
pub(crate) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Why the process is not ready, by the program's own rule.
pub(crate) type Readiness = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What all handles, requests and the sampler share.
pub(crate) struct Shared {
    settings: Mutex<Settings>,
    board: Mutex<Board>,
    /// The last message for event streams. `None` before the first, and at the end.
    messages: watch::Sender<Message>,
    pub(crate) streams: Arc<Semaphore>,
}

#[derive(Default)]
struct Settings {
    runtime: Option<Arc<dyn Runtime>>,
    /// Whether the runtime is the one in which the page was served first. It is not kept after its end.
    is_found: bool,
    is_running: bool,
    metrics: Option<Render>,
    readiness: Option<Readiness>,
}

/// What event streams get.
#[derive(Clone, Debug, Default)]
pub(crate) enum Message {
    /// Nothing yet.
    #[default]
    None,
    /// The sample with this number, framed.
    Sample(u64, Bytes),
    /// The page is closed.
    Closed,
}

impl StatusPage {
    /// A page without pools. It takes time and tasks from the runtime in which it is served, unless
    /// [`runtime`](Self::runtime) sets another.
    #[must_use]
    pub fn new() -> Self {
        let shared = Shared {
            settings: Mutex::default(),
            board: Mutex::default(),
            messages: watch::Sender::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets the runtime that the page takes time and tasks from. It has no effect once the page is served.
    /// [`serve`](Self::serve) needs one that runs on tokio; [`router`](Self::router) works with any.
    #[must_use]
    pub fn runtime(self, runtime: impl Runtime) -> Self {
        self.shared.settings.lock().runtime = Some(Arc::new(runtime));
        self
    }

    /// Renders `/metrics`: usually [`prometheus`](crate::prometheus()), or the `render` of another exporter.
    #[must_use]
    pub fn metrics(self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.shared.settings.lock().metrics = Some(Arc::new(render));
        self
    }

    /// Adds a reservoir. The page holds it weakly: it does not keep it open. A pool with the same name is
    /// replaced.
    pub fn reservoir<C: Connect>(&self, name: impl Into<String>, reservoir: &Reservoir<C>) {
        self.pool(name, reservoir.downgrade());
    }

    /// Adds a pool that knows more than a reservoir, such as its leases and its token. A pool with the same
    /// name is replaced.
    pub fn pool(&self, name: impl Into<String>, source: impl PoolSource) {
        self.shared.add(name.into(), Arc::new(source));
    }

    /// Decides whether the process is ready, for `/readyz`: `reasons` returns why it is not, a line each, and nothing if it is. The pools
    /// do not matter any more then, unless it asks them. It must answer at once.
    pub fn ready_when(&self, reasons: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.shared.settings.lock().readiness = Some(Arc::new(reasons));
    }

    /// Adds a line to the recent events, such as a deployment.
    pub fn note(&self, text: impl Into<String>) {
        let now = self.shared.now();
        self.shared.board.lock().note(now, text.into());
    }

    /// The page and its endpoints, to mount in a service of your own: alone, with [`Router::nest`], or with
    /// [`Router::nest_service`], which also answers the path with a slash at its end. It has no
    /// authentication: the service decides who may see it.
    ///
    /// A graceful shutdown of the service waits for its open event streams. [`close`](Self::close) ends them.
    pub fn router(&self) -> Router {
        // Outside a runtime, the first request starts the sampler.
        let _ = self.shared.start();
        router::router(Arc::clone(&self.shared))
    }

    /// Serves the page at an address of its own. Loopback needs no token; any other address requires one.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing that was served before, and leaves nothing behind.
    ///
    /// # Errors
    /// Returns an error if the address needs a token, if it cannot be listened on, or outside a tokio
    /// runtime.
    pub async fn serve(&self, listen: Listen) -> Result<Server, ServeError> {
        server::serve(&self.shared, listen).await
    }

    /// Ends all event streams, and refuses new ones, so that a graceful shutdown can finish.
    pub fn close(&self) {
        self.shared.messages.send_replace(Message::Closed);
    }

    /// The text of `/status.json`, for services that do not use axum.
    #[must_use]
    pub fn status_json(&self) -> String {
        let _ = self.shared.start();
        self.shared.status_json()
    }
}

impl Default for StatusPage {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StatusPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatusPage").field(&self.shared.board.lock().pools.keys().collect::<Vec<_>>()).finish()
    }
}

impl Shared {
    /// Starts the sampler, unless it runs. Returns the runtime.
    pub(crate) fn start(self: &Arc<Self>) -> Result<Arc<dyn Runtime>, NoRuntime> {
        let runtime = {
            let mut settings = self.settings.lock();
            let runtime = match &settings.runtime {
                Some(runtime) => Arc::clone(runtime),
                None => {
                    settings.is_found = true;
                    Arc::clone(settings.runtime.insert(rt::current()?))
                }
            };
            if std::mem::replace(&mut settings.is_running, true) {
                return Ok(runtime);
            }
            runtime
        };
        self.sample();
        let sampler = Sampler::new(self, Arc::clone(&runtime));
        runtime.spawn(Box::pin(sampler.run()));
        Ok(runtime)
    }

    /// The sampler has ended: the next request starts another, in its own runtime.
    pub(crate) fn stopped(&self) {
        let mut settings = self.settings.lock();
        settings.is_running = false;
        if std::mem::take(&mut settings.is_found) {
            settings.runtime = None;
        }
    }

    pub(crate) fn render(&self) -> Option<Render> {
        self.settings.lock().metrics.clone()
    }

    /// The present time. `None` before the page has a clock.
    fn now(&self) -> Option<Now> {
        let runtime = match &self.settings.lock().runtime {
            Some(runtime) => Arc::clone(runtime),
            None => rt::current().ok()?,
        };
        Some(Now { at: runtime.now(), wall: runtime.wall() })
    }

    fn add(&self, name: String, source: Arc<dyn PoolSource>) {
        let replaced = self.board.lock().add(name.clone(), Arc::clone(&source));
        drop(replaced);
        // The page shows it from now on, not from the next sample on.
        let is_running = self.settings.lock().is_running;
        if is_running
            && let Some(now) = self.now()
            && let Some(reading) = Reading::take(&name, &source, false)
        {
            let mut board = self.board.lock();
            let next = board.tick + 1;
            board.take_in(next, now, reading);
        }
    }

    /// Reads all pools, and tells those who look.
    pub(crate) fn sample(&self) {
        let Some(now) = self.now() else { return };
        let somebody_looks = self.messages.receiver_count() > 0;
        // These are dropped after the lock: a source is somebody else's code.
        let sources = self.board.lock().sources();
        let readings: Vec<_> =
            sources.iter().filter_map(|(name, source)| Reading::take(name, source, somebody_looks)).collect();
        let decided = self.decide();
        let mut board = self.board.lock();
        board.decided = decided;
        let gone = board.begin(now);
        for reading in readings {
            let tick = board.tick;
            board.take_in(tick, now, reading);
        }
        let message = somebody_looks.then(|| stream::sample(&board));
        drop(board);
        drop(gone);
        if let Some(message) = message {
            self.messages.send_if_modified(|last| {
                let is_open = !matches!(last, Message::Closed);
                if is_open {
                    *last = message;
                }
                is_open
            });
        }
    }

    pub(crate) fn messages(&self) -> watch::Receiver<Message> {
        self.messages.subscribe()
    }

    /// Lists the connections of all pools, and reads the board with them.
    pub(crate) fn with_connections<T>(&self, read: impl FnOnce(&Board) -> T) -> T {
        let sources = self.board.lock().sources();
        let list =
            |source: &Arc<dyn PoolSource>| catch_unwind(AssertUnwindSafe(|| source.connections())).ok();
        let lists: Vec<_> = sources.iter().map(|(_, source)| list(source)).collect();
        let decided = self.decide();
        let mut board = self.board.lock();
        board.decided = decided;
        for ((name, source), list) in sources.iter().zip(&lists) {
            if let Some(list) = list {
                board.take_in_connections(name, source, list);
            }
        }
        read(&board)
    }

    pub(crate) fn status_json(&self) -> String {
        self.with_connections(|board| document::status(board).to_string())
    }

    /// What the program's own rule says, if it has one. Call it without a lock: it is somebody else's code.
    fn decide(&self) -> Option<Vec<String>> {
        let readiness = self.settings.lock().readiness.clone()?;
        let reasons = catch_unwind(AssertUnwindSafe(|| readiness()));
        Some(reasons.unwrap_or_else(|_| vec!["the program could not say whether it is ready".into()]))
    }

    /// Why the process is not ready, as of now: a probe does not wait for the next sample.
    pub(crate) fn unready(&self) -> Vec<String> {
        if let Some(reasons) = self.decide() {
            return reasons;
        }
        let sources = self.board.lock().sources();
        let readings: Vec<_> =
            sources.iter().filter_map(|(name, source)| Reading::take(name, source, false)).collect();
        self.board.lock().probe(&readings)
    }
}
