//! Signs tokens with one key, without AWS's SDK.

use dsql_local::{Action, Credentials};
use forebay_dsql::{SignFuture, Signed, Signer, Token, TokenRequest};

/// Signs with this key.
pub(crate) struct KeySigner(pub(crate) Credentials);

impl KeySigner {
    /// Signs with the key of the environment. A build without AWS's SDK knows no other; with these features, it has the SDK.
    #[cfg(all(not(feature = "aws"), any(feature = "gateway", feature = "schema")))]
    pub(crate) fn from_env(features: &str) -> anyhow::Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"))
        else {
            anyhow::bail!(
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and this build signs with nothing else; for roles and \
                 profiles, build it with: cargo build --release --features {features}"
            );
        };
        let session_token = variable("AWS_SESSION_TOKEN");
        Ok(Self(Credentials { session_token, ..Credentials::new(id, secret) }))
    }
}

impl Signer for KeySigner {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        let identity = &request.identity;
        let action = Action::for_role(&identity.user);
        let token = dsql_local::sign_now(&self.0, &identity.host, &identity.region, action, request.life);
        Box::pin(std::future::ready(Ok(Signed { token: Token::new(token), credentials_expire: None })))
    }
}
