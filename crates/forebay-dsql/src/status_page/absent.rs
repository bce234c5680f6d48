//! This program is built without the status page.

use std::sync::Arc;

use forebay::Connect;
use forebay::rt::Runtime;

use crate::options::Options;
use crate::pool::PoolHandles;

/// There is none.
#[derive(Debug)]
pub(crate) enum ServedPage {}

impl ServedPage {
    /// Says what is missing if the options ask for a page.
    pub(crate) async fn open(options: &Options, _runtime: &Arc<dyn Runtime>) -> Option<Arc<Self>> {
        if options.settings().status_page.is_some() {
            tracing::warn!(
                target: "forebay",
                "DSQL_DESK_LISTEN is set, but there is no status page: build forebay-dsql with the feature `status-page`"
            );
        }
        None
    }

    pub(crate) fn ready_when(&self, _reasons: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        match *self {}
    }

    pub(crate) fn show<C: Connect>(&self, _options: &Options, _pool: PoolHandles<'_, C>) {
        match *self {}
    }
}
