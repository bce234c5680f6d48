//! What the examples run against: a local Aurora DSQL in the same process, and whoever signs tokens for it.
//!
//! With a real cluster there is none of this: `Options::from_env()` and the signer of `forebay-aws` take its place.

use std::sync::Arc;

use dsql_local::{Cluster, Config, Credentials};
use forebay_dsql::{
    Options, OptionsBuilder, RootCertificates, SignFuture, Signed, Signer, Token, TokenError, TokenRequest,
};

pub(crate) struct Local(Arc<Cluster>);

impl Local {
    pub(crate) fn start() -> Result<Self, dsql_local::Error> {
        let credentials = vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")];
        let cluster = Cluster::start(Config { credentials, ..Config::default() })?;
        println!("a local Aurora DSQL listens on {}", cluster.address());
        Ok(Self(Arc::new(cluster)))
    }

    /// How to reach it, as an environment would say for a real one.
    pub(crate) fn options(&self) -> OptionsBuilder {
        Options::builder(self.0.endpoint())
            .port(self.0.address().port())
            .region(self.0.region())
            .roots(RootCertificates::Pem(self.0.ca_pem().as_bytes().into()))
    }

    pub(crate) fn signer(&self) -> impl Signer {
        LocalSigner(Arc::clone(&self.0))
    }

    /// Makes it fail, as `dsql-local --fault` does.
    #[allow(dead_code, reason = "not every example does")]
    pub(crate) fn fail(&self, fault: &str) -> Result<(), Box<dyn std::error::Error>> {
        self.0.inject(fault.parse()?);
        Ok(())
    }
}

struct LocalSigner(Arc<Cluster>);

impl Signer for LocalSigner {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let token = self.0.token(&request.identity.user);
            let token = token.ok_or_else(|| TokenError::credentials("the cluster has no key"))?;
            Ok(Signed { token: Token::new(token), credentials_expire: None })
        })
    }
}
