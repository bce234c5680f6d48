//! A cache for credentials, with one load at a time.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_async::time::SharedTimeSource;
use tokio::sync::Mutex;

/// Credentials are renewed this long before they expire. Roles replace theirs five minutes before.
const AHEAD: Duration = Duration::from_secs(5 * 60);
/// Credentials without an expiry are loaded again after this time: a file may have changed.
const MAX_AGE: Duration = Duration::from_secs(15 * 60);

/// A load that takes longer is dropped, and another one starts.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The cached credentials of a provider. This is a provider itself, so that all clients of the process share the cache.
pub(crate) struct CachedCredentials {
    provider: Option<SharedCredentialsProvider>,
    time: SharedTimeSource,
    /// Locked during a load: other callers wait for its result.
    state: Mutex<State>,
    /// A token was denied: the credentials may have been replaced.
    reload: AtomicBool,
}

#[derive(Default)]
struct State {
    cached: Option<Cached>,
    /// A load in progress that no caller waits for.
    loading: Option<Loading>,
}

/// A load. Callers wait 5 s for a token, and some providers take longer. The next caller continues the same load.
struct Loading {
    load: Pin<Box<dyn Future<Output = Result<Credentials, CredentialsError>> + Send>>,
    began: SystemTime,
}

/// A load that a caller waits for. If it is dropped before the end, the next caller continues it.
struct Awaited<'a> {
    loading: Option<Loading>,
    left: &'a mut Option<Loading>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        // A load that has panicked cannot continue.
        if !std::thread::panicking() {
            *self.left = self.loading.take();
        }
    }
}

struct Cached {
    credentials: Credentials,
    loaded: SystemTime,
}

impl Cached {
    fn is_fresh(&self, now: SystemTime) -> bool {
        match self.credentials.expiry() {
            Some(expiry) => now + AHEAD < expiry,
            // A clock that was set back also makes them old.
            None => now.duration_since(self.loaded).is_ok_and(|age| age < MAX_AGE),
        }
    }

    fn is_valid(&self, now: SystemTime) -> bool {
        self.credentials.expiry().is_none_or(|expiry| now < expiry)
    }
}

impl CachedCredentials {
    pub(crate) fn new(provider: Option<SharedCredentialsProvider>, time: SharedTimeSource) -> Self {
        Self { provider, time, state: Mutex::default(), reload: AtomicBool::new(false) }
    }

    /// Loads new credentials at the next call.
    pub(crate) fn reload(&self) {
        self.reload.store(true, Ordering::Release);
    }

    /// Valid credentials: the cached ones, or new ones. If the load fails, the cached ones are used until they expire.
    ///
    /// # Cancel safety
    /// Cancel safe: the next caller continues the load.
    pub(crate) async fn get(&self) -> Result<Credentials, CredentialsError> {
        let now = self.time.now();
        let mut state = self.state.lock().await;
        let State { cached, loading } = &mut *state;
        let reload = self.reload.load(Ordering::Acquire);
        if let Some(cached) = cached.as_ref().filter(|cached| !reload && cached.is_fresh(now)) {
            return Ok(cached.credentials.clone());
        }
        match self.load(loading, now).await {
            Ok(credentials) => {
                self.reload.store(false, Ordering::Release);
                *cached = Some(Cached { credentials: credentials.clone(), loaded: now });
                Ok(credentials)
            }
            Err(error) => match cached.as_ref().filter(|cached| cached.is_valid(now)) {
                Some(cached) => Ok(cached.credentials.clone()),
                None => Err(error),
            },
        }
    }

    /// Continues the load in progress, or starts one.
    async fn load(
        &self,
        left: &mut Option<Loading>,
        now: SystemTime,
    ) -> Result<Credentials, CredentialsError> {
        let Some(provider) = &self.provider else {
            return Err(CredentialsError::not_loaded("the SDK's configuration has no credentials provider"));
        };
        // After a clock was set back, the age is unknown.
        let stuck =
            |loading: &Loading| now.duration_since(loading.began).is_ok_and(|age| age >= LOAD_TIMEOUT);
        let loading = left.take().filter(|loading| !stuck(loading)).unwrap_or_else(|| {
            let provider = provider.clone();
            Loading { load: Box::pin(async move { provider.provide_credentials().await }), began: now }
        });
        let mut awaited = Awaited { loading: Some(loading), left };
        let loaded = poll_fn(|context| match &mut awaited.loading {
            Some(loading) => loading.load.as_mut().poll(context),
            None => std::task::Poll::Pending,
        });
        let loaded = loaded.await;
        awaited.loading = None;
        loaded
    }
}

impl ProvideCredentials for CachedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.get())
    }
}

impl fmt::Debug for CachedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CachedCredentials")
    }
}
