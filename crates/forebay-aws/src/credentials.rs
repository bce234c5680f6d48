//! Credentials, loaded one at a time and kept while they are good.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use forebay_dsql::TokenError;
use tokio::sync::Mutex;

/// New ones are asked for so long before the end: roles have theirs replaced five minutes before.
const AHEAD: Duration = Duration::from_secs(5 * 60);
/// Those without an end are looked up again after so long: someone may have changed a file.
const ENDLESS: Duration = Duration::from_secs(15 * 60);

/// What a provider gave, while it is good.
pub(crate) struct KeptCredentials {
    provider: Option<SharedCredentialsProvider>,
    /// Held while they are loaded: whoever else wants some waits, and finds them here.
    kept: Mutex<Option<Kept>>,
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
    pub(crate) fn new(provider: Option<SharedCredentialsProvider>) -> Self {
        Self { provider, kept: Mutex::default() }
    }

    /// Credentials that are good at `now`: those kept, or new ones. If no new ones can be had, the kept ones will do while
    /// they last.
    ///
    /// # Cancel safety
    /// Dropped while it loads, it lets the next in line load.
    pub(crate) async fn at(&self, now: SystemTime) -> Result<Credentials, TokenError> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_fresh(now)) {
            return Ok(kept.credentials.clone());
        }
        match self.load().await {
            Ok(credentials) => {
                *kept = Some(Kept { credentials: credentials.clone(), loaded: now });
                Ok(credentials)
            }
            Err(error) => match kept.as_ref().filter(|kept| kept.is_good(now)) {
                Some(kept) => Ok(kept.credentials.clone()),
                None => Err(error),
            },
        }
    }

    async fn load(&self) -> Result<Credentials, TokenError> {
        let Some(provider) = &self.provider else {
            return Err(TokenError::credentials("the SDK's configuration has no provider of credentials"));
        };
        provider.provide_credentials().await.map_err(|error| match error {
            CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
                TokenError::credentials(error)
            }
            error => TokenError::unavailable(error),
        })
    }
}
