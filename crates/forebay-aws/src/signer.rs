//! Tokens, signed with the SDK.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_config::{Region, SdkConfig};
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sdk_dsql::auth_token::{AuthTokenGenerator, Config};
use aws_smithy_async::time::{SharedTimeSource, SystemTimeSource};
use forebay_dsql::{Action, Identity, SignFuture, Signed, Signer, Token, TokenError, TokenRequest};

use crate::credentials::KeptCredentials;
use crate::sdk;

/// A [`Signer`] that uses the SDK. Credentials are loaded once and kept, and only one load is under way at a time,
/// however many identities sign and however long it takes: instance metadata services have been broken by less.
pub struct SdkSigner {
    /// With `credentials` as its provider.
    sdk: SdkConfig,
    credentials: Arc<KeptCredentials>,
}

impl SdkSigner {
    /// A signer with the credentials that the SDK finds for this process, by its usual order: variables, profile, web
    /// identity, the role of the container or the instance. Nothing is loaded before the first token is asked for.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn from_env() -> Self {
        Self::new(sdk::loader().load().await)
    }

    /// A signer with the credentials of `sdk`, by its time source, or the system's if it has none.
    #[must_use]
    pub fn new(sdk: SdkConfig) -> Self {
        let time = sdk.time_source().unwrap_or_else(|| SharedTimeSource::new(SystemTimeSource::new()));
        let credentials = Arc::new(KeptCredentials::new(sdk.credentials_provider(), time.clone()));
        let kept = Arc::clone(&credentials) as Arc<dyn ProvideCredentials>;
        let provider = SharedCredentialsProvider::from(kept);
        let sdk = sdk.into_builder().time_source(time).credentials_provider(provider).build();
        Self { sdk, credentials }
    }

    /// The SDK as this signer uses it: with the credentials that it keeps.
    #[cfg(feature = "dynamodb")]
    pub(crate) fn sdk(&self) -> &SdkConfig {
        &self.sdk
    }

    async fn sign_with_sdk(&self, request: &TokenRequest) -> Result<Signed, TokenError> {
        let TokenRequest { identity, life } = request;
        let credentials = self.credentials.good().await.map_err(explained)?;
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
        // The SDK's own type prints its secret; it does not leave this line.
        let token = Token::new(token.map_err(TokenError::unavailable)?.as_str());
        let expiry = credentials.expiry().map(|at| at.duration_since(UNIX_EPOCH).unwrap_or_default());
        Ok(Signed { token, credentials_expire: expiry })
    }
}

/// For how long to sign a token that is to live for `life`: whole seconds, within what a cluster takes. Rather longer than shorter, or it
/// would be used after its end.
fn whole_seconds(life: Duration) -> u64 {
    const WEEK: u64 = 604_800;
    (life.as_secs() + u64::from(life.subsec_nanos() > 0)).clamp(1, WEEK)
}

fn explained(error: CredentialsError) -> TokenError {
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
        self.credentials.doubt();
    }
}

impl fmt::Debug for SdkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SdkSigner")
    }
}
