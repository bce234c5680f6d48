//! Every metric of tokens and transactions, in one place: its name, its labels, and who counts it.

use std::sync::OnceLock;

use ::metrics::{Counter, SharedString, counter, describe_counter};
use forebay::metrics::Kind;

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// Its labels beside `service`.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident $name:literal $kind:ident $labels:expr, $help:literal;)*) => {
        $(const $constant: Metric = Metric { name: $name, kind: Kind::$kind, labels: &$labels, help: $help };)*

        /// Every metric of tokens and transactions, in the order of the manual.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    TOKEN_HITS "dsql_token_cache_hits" Counter [], "Callers who got a token at once";
    TOKEN_MISSES "dsql_token_cache_misses" Counter [], "Callers who had to wait for one";
    TOKEN_REFRESHES "dsql_token_refreshes" Counter [], "Tokens signed";
    TOKEN_FAILURES "dsql_token_refresh_failures" Counter [], "Signings that failed";
}

/// The counters of a token cache. Registered when first used, so that an exporter can be installed until then.
pub(crate) struct TokenCounters {
    service: SharedString,
    handles: OnceLock<[Counter; 4]>,
}

impl TokenCounters {
    pub(crate) fn new(service: &str) -> Self {
        Self { service: service.to_owned().into(), handles: OnceLock::new() }
    }

    pub(crate) fn asked(&self, hit: bool) {
        self.handles()[usize::from(!hit)].increment(1);
    }

    pub(crate) fn signed(&self, well: bool) {
        self.handles()[2 + usize::from(!well)].increment(1);
    }

    fn handles(&self) -> &[Counter; 4] {
        self.handles.get_or_init(|| {
            [TOKEN_HITS, TOKEN_MISSES, TOKEN_REFRESHES, TOKEN_FAILURES].map(|metric| {
                describe_counter!(metric.name, metric.help);
                counter!(metric.name, "service" => self.service.clone())
            })
        })
    }
}
