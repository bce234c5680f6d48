//! Signs tokens with one key, without AWS's SDK.

use dsql_local::{Action, Credentials};
use forebay_dsql::{SignFuture, Signed, Signer, Token, TokenRequest};

/// Signs with this key.
pub(crate) struct KeySigner(pub(crate) Credentials);

impl Signer for KeySigner {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        let identity = &request.identity;
        let action = Action::for_role(&identity.user);
        let token = dsql_local::sign_now(&self.0, &identity.host, &identity.region, action, request.life);
        Box::pin(std::future::ready(Ok(Signed { token: Token::new(token), credentials_expire: None })))
    }
}
