//! Signs tokens with the SDK.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_config::{Region, SdkConfig};
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sdk_dsql::auth_token::{AuthTokenGenerator, Config};
use aws_smithy_async::time::{SharedTimeSource, SystemTimeSource};
use forebay_dsql::{Action, Identity, SignFuture, Signed, Signer, Token, TokenError, TokenRequest};

use crate::credentials::CachedCredentials;
use crate::sdk;

/// A [`Signer`] that uses the SDK. It loads credentials once and caches them. Only one load runs at a time, for any
/// number of identities, because instance metadata services do not withstand many requests.
pub struct SdkSigner {
    /// With `credentials` as its provider.
    sdk: SdkConfig,
    credentials: Arc<CachedCredentials>,
}

impl SdkSigner {
    /// A signer with the credentials that the SDK finds for this process, in its usual order: variables, profile, web
    /// identity, the role of the container or the instance. They are loaded for the first token.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn from_env() -> Self {
        Self::new(sdk::loader().load().await)
    }

    /// A signer with the credentials and the time source of `sdk`, or the system's time.
    #[must_use]
    pub fn new(sdk: SdkConfig) -> Self {
        let time = sdk.time_source().unwrap_or_else(|| SharedTimeSource::new(SystemTimeSource::new()));
        let credentials = Arc::new(CachedCredentials::new(sdk.credentials_provider(), time.clone()));
        let cached = Arc::clone(&credentials) as Arc<dyn ProvideCredentials>;
        let provider = SharedCredentialsProvider::from(cached);
        let sdk = sdk.into_builder().time_source(time).credentials_provider(provider).build();
        Self { sdk, credentials }
    }

    /// The SDK's configuration with the cached credentials.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn sdk(&self) -> &SdkConfig {
        &self.sdk
    }

    /// A table with the credentials of this signer, and the region of the SDK unless `location` has one.
    ///
    /// # Errors
    /// If there is no region, or the address is invalid.
    #[cfg(feature = "inspect")]
    pub fn table(
        &self,
        name: impl Into<String>,
        location: crate::dynamo::Location,
    ) -> Result<crate::dynamo::DynamoTable, crate::dynamo::LocationError> {
        crate::dynamo::DynamoTable::located(self.sdk.clone(), name, location)
    }

    /// The credentials, from the cache or newly loaded.
    #[cfg(feature = "inspect")]
    pub(crate) async fn credentials(&self) -> Result<aws_credential_types::Credentials, TokenError> {
        self.credentials.get().await.map_err(token_error)
    }

    async fn sign_with_sdk(&self, request: &TokenRequest) -> Result<Signed, TokenError> {
        let TokenRequest { identity, life } = request;
        let credentials = self.credentials.get().await.map_err(token_error)?;
        let config = Config::builder()
            .hostname(&identity.host)
            .region(Region::new(identity.region.clone()))
            .expires_in(whole_seconds(*life))
            .credentials(credentials.clone())
            .build()
            .map_err(TokenError::credentials)?;
        let generator = AuthTokenGenerator::new(config);
        let token = match identity.action {
            Action::DbConnect => generator.db_connect_auth_token(&self.sdk).await,
            Action::DbConnectAdmin => generator.db_connect_admin_auth_token(&self.sdk).await,
        };
        // The SDK's type prints its secret, so it is converted at once.
        let token = Token::new(token.map_err(TokenError::unavailable)?.as_str());
        let expiry = credentials.expiry().map(|at| at.duration_since(UNIX_EPOCH).unwrap_or_default());
        Ok(Signed { token, credentials_expire: expiry })
    }
}

/// `life` in whole seconds, within the limits of a cluster. Rounded up, so that a token is not used after its end.
fn whole_seconds(life: Duration) -> u64 {
    const WEEK: u64 = 604_800;
    (life.as_secs() + u64::from(life.subsec_nanos() > 0)).clamp(1, WEEK)
}

fn token_error(error: CredentialsError) -> TokenError {
    match error {
        CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
            TokenError::credentials(error)
        }
        error => TokenError::unavailable(error),
    }
}

impl Signer for SdkSigner {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(self.sign_with_sdk(request))
    }

    fn denied(&self, _identity: &Identity) {
        self.credentials.reload();
    }
}

impl fmt::Debug for SdkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SdkSigner")
    }
}
