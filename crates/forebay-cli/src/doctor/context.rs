//! What the checks share: the configuration, the time they have, and what earlier ones have found.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{self, Runtime, TokioRuntime};
use forebay_aws::SdkSigner;
use forebay_dsql::Options;

use super::check::Check;
use super::clock::Reading;
use super::configuration::Configuration;
use super::finding::Finding;
use super::page_token::PageToken;

/// What the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The cluster's quota of connections.
    pub(crate) quota: u64,
    pub(crate) dynamodb_endpoint: Option<String>,
    pub(crate) status: Option<String>,
    /// The token of that page, or why it cannot be used.
    pub(crate) page_token: Result<Option<PageToken>, String>,
}

pub(crate) struct Context<'a> {
    pub(crate) runtime: &'a TokioRuntime,
    pub(crate) request: &'a Request,
    pub(crate) variables: BTreeMap<String, String>,
    pub(super) configuration: Configuration,
    /// Made by the first check that needs it.
    signer: Option<Arc<SdkSigner>>,
    /// The cluster's addresses, once they are known.
    pub(crate) addresses: Option<Vec<SocketAddr>>,
    /// Those that accept TCP, once that is known.
    pub(crate) accepting: Option<Vec<SocketAddr>>,
    /// Other clocks, compared with this machine's.
    pub(crate) readings: Vec<Reading>,
    /// The checks without a result that others can build on, with what failed first.
    pub(crate) failed: BTreeMap<Check, Finding>,
    deadline: Instant,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        runtime: &'a TokioRuntime,
        request: &'a Request,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self {
            runtime,
            request,
            configuration: Configuration::read(&variables, request),
            variables,
            signer: None,
            addresses: None,
            accepting: None,
            readings: Vec::new(),
            failed: BTreeMap::new(),
            deadline: runtime.now(),
        }
    }

    /// The options that the checks use. None if the configuration does not name a cluster.
    pub(crate) fn options(&self) -> Option<&Options> {
        self.configuration.options.as_ref()
    }

    /// What has failed of what `check` needs: a variable that it reads, or an earlier check.
    pub(crate) fn blocks(&self, check: Check) -> Option<Finding> {
        let needs_cluster = check.reads("CLUSTER_ENDPOINT");
        let is_needed = |name: &str| check.reads(name) || (needs_cluster && self.options().is_none());
        let wrong = self.configuration.wrong(is_needed);
        wrong.or_else(|| check.needs().iter().find_map(|needed| self.failed.get(needed))).cloned()
    }

    /// Gives the next check this much time.
    pub(crate) fn allow(&mut self, time: Duration) {
        self.deadline = self.runtime.now() + time;
    }

    /// The time that is left for this check.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.since(self.runtime.now())
    }

    /// Runs `work` for at most the time that is left, divided by `parts`. None if it takes longer.
    pub(crate) async fn bounded<T>(&self, parts: usize, work: impl Future<Output = T>) -> Option<T> {
        let share = self.left() / u32::try_from(parts.max(1)).unwrap_or(u32::MAX);
        rt::within(self.runtime, share, work).await
    }

    /// Signs with the credentials of this process.
    pub(crate) async fn signer(&mut self) -> Arc<SdkSigner> {
        if let Some(signer) = &self.signer {
            return Arc::clone(signer);
        }
        let signer = Arc::new(SdkSigner::from_env().await);
        self.signer = Some(Arc::clone(&signer));
        signer
    }

    /// Every address of the cluster. Looks them up unless check dns did.
    pub(crate) async fn addresses(&mut self) -> std::io::Result<Vec<SocketAddr>> {
        if let Some(addresses) = &self.addresses {
            return Ok(addresses.clone());
        }
        let Some(options) = self.configuration.options.clone() else { return Ok(Vec::new()) };
        let late = || Err(std::io::ErrorKind::TimedOut.into());
        let lookup = tokio::net::lookup_host((options.address(), options.port()));
        let found: Vec<SocketAddr> = self.bounded(1, lookup).await.unwrap_or_else(late)?.collect();
        self.addresses = Some(found.clone());
        Ok(found)
    }
}
