//! Credentials, loaded one at a time and kept while they are good.

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

/// New ones are asked for so long before the end: roles have theirs replaced five minutes before.
const AHEAD: Duration = Duration::from_secs(5 * 60);
/// Those without an end are looked up again after so long: someone may have changed a file.
const ENDLESS: Duration = Duration::from_secs(15 * 60);

/// A load that takes longer is given up, and another begun.
const LONGEST_LOAD: Duration = Duration::from_secs(60);

/// What a provider gave, while it is good. A provider itself: whatever else of this process uses the SDK loads none of its own.
pub(crate) struct KeptCredentials {
    provider: Option<SharedCredentialsProvider>,
    time: SharedTimeSource,
    /// Held while they are loaded: whoever else wants some waits, and finds them here.
    state: Mutex<State>,
    /// A token of theirs was denied: they may have been replaced.
    doubted: AtomicBool,
}

#[derive(Default)]
struct State {
    kept: Option<Kept>,
    /// Under way, and waited for by nobody just now.
    loading: Option<Loading>,
}

/// A load. Callers wait 5 s for a token, and some providers take longer: whoever asks next goes on with the same load.
struct Loading {
    load: Pin<Box<dyn Future<Output = Result<Credentials, CredentialsError>> + Send>>,
    began: SystemTime,
}

/// A load that is waited for. Unless it is done it is left to the next.
struct Waited<'a> {
    loading: Option<Loading>,
    left: &'a mut Option<Loading>,
}

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        // One that has panicked cannot go on.
        if !std::thread::panicking() {
            *self.left = self.loading.take();
        }
    }
}

struct Kept {
    credentials: Credentials,
    loaded: SystemTime,
}

impl Kept {
    fn is_fresh(&self, now: SystemTime) -> bool {
        match self.credentials.expiry() {
            Some(expiry) => now + AHEAD < expiry,
            // A clock set back makes them old, too.
            None => now.duration_since(self.loaded).is_ok_and(|age| age < ENDLESS),
        }
    }

    fn is_good(&self, now: SystemTime) -> bool {
        self.credentials.expiry().is_none_or(|expiry| now < expiry)
    }
}

impl KeptCredentials {
    pub(crate) fn new(provider: Option<SharedCredentialsProvider>, time: SharedTimeSource) -> Self {
        Self { provider, time, state: Mutex::default(), doubted: AtomicBool::new(false) }
    }

    /// New ones shall be loaded when some are asked for next, if there are any.
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, Ordering::Release);
    }

    /// Credentials that are good now: those kept, or new ones. If no new ones can be had, the kept ones will do while
    /// they last.
    ///
    /// # Cancel safety
    /// Dropped while it loads, it leaves the load to the next in line, who goes on with it.
    pub(crate) async fn good(&self) -> Result<Credentials, CredentialsError> {
        let now = self.time.now();
        let mut state = self.state.lock().await;
        let State { kept, loading } = &mut *state;
        let doubted = self.doubted.load(Ordering::Acquire);
        if let Some(kept) = kept.as_ref().filter(|kept| !doubted && kept.is_fresh(now)) {
            return Ok(kept.credentials.clone());
        }
        match self.load(loading, now).await {
            Ok(credentials) => {
                self.doubted.store(false, Ordering::Release);
                *kept = Some(Kept { credentials: credentials.clone(), loaded: now });
                Ok(credentials)
            }
            Err(error) => match kept.as_ref().filter(|kept| kept.is_good(now)) {
                Some(kept) => Ok(kept.credentials.clone()),
                None => Err(error),
            },
        }
    }

    /// Goes on with the load that was left, or begins one.
    async fn load(
        &self,
        left: &mut Option<Loading>,
        now: SystemTime,
    ) -> Result<Credentials, CredentialsError> {
        let Some(provider) = &self.provider else {
            return Err(CredentialsError::not_loaded(
                "the SDK's configuration has no provider of credentials",
            ));
        };
        // A clock that was set back says nothing of its age.
        let stuck =
            |loading: &Loading| now.duration_since(loading.began).is_ok_and(|age| age >= LONGEST_LOAD);
        let loading = left.take().filter(|loading| !stuck(loading)).unwrap_or_else(|| {
            let provider = provider.clone();
            Loading { load: Box::pin(async move { provider.provide_credentials().await }), began: now }
        });
        let mut waited = Waited { loading: Some(loading), left };
        let loaded = poll_fn(|context| match &mut waited.loading {
            Some(loading) => loading.load.as_mut().poll(context),
            None => std::task::Poll::Pending,
        });
        let loaded = loaded.await;
        waited.loading = None;
        loaded
    }
}

impl ProvideCredentials for KeptCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.good())
    }
}

impl fmt::Debug for KeptCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptCredentials")
    }
}
