//! The page, and its server.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use forebay::Connect;
use forebay::rt::Runtime;
use forebay_status::{Listen, Server, StatusPage};
use tokio::sync::Mutex;

use crate::options::Options;
use crate::pool::PoolHandles;
use crate::settings::StatusPageSettings;
use crate::status_page::source::Source;
use crate::token::Token;

/// The pages of this process, by address: pools that name the same address are on the same page.
static PAGES: Mutex<BTreeMap<SocketAddr, Weak<ServedPage>>> = Mutex::const_new(BTreeMap::new());

/// A page and its server. It ends with the last pool and member that has it.
pub(crate) struct ServedPage {
    page: StatusPage,
    server: Server,
    /// What clients must present.
    token: Option<Token>,
    /// The names on the page, each with a question: does its pool still exist?
    names: parking_lot::Mutex<BTreeMap<String, Exists>>,
}

type Exists = Box<dyn Fn() -> bool + Send>;

impl ServedPage {
    /// The page that the options ask for, if any. It is served from now on.
    ///
    /// A page that cannot be served does not stop a service: it is logged.
    ///
    /// Call it before anything registers metrics: it installs an exporter, unless the program has one.
    pub(crate) async fn open(options: &Options, runtime: &Arc<dyn Runtime>) -> Option<Arc<Self>> {
        let StatusPageSettings { listen, token } = options.settings().status_page.as_ref()?;
        let mut pages = PAGES.lock().await;
        // A page whose runtime has ended does not come back.
        let served = pages.get(listen).and_then(Weak::upgrade).filter(|page| page.server.is_serving());
        if let Some(page) = served {
            if page.token == *token {
                return Some(page);
            }
            // Whoever has the token of that page must not see this pool.
            tracing::error!(
                target: "forebay",
                %listen,
                "Status page: this pool is not shown, because another pool serves the page with another DSQL_DESK_TOKEN"
            );
            return None;
        }
        let page = StatusPage::new().runtime(Arc::clone(runtime));
        match serve(&page, *listen, token.as_ref()).await {
            Ok(server) => {
                // Not without a page: nobody would scrape the exporter, and its samples would pile up.
                let page = match forebay_status::prometheus() {
                    Ok(render) => page.metrics(render),
                    Err(error) => {
                        tracing::info!(target: "forebay", %error, "Status page: no /metrics");
                        page
                    }
                };
                tracing::info!(target: "forebay", address = %server.address(), "Status page enabled");
                let served = Arc::new(Self { page, server, token: token.clone(), names: Default::default() });
                pages.insert(*listen, Arc::downgrade(&served));
                Some(served)
            }
            Err(error) => {
                tracing::error!(target: "forebay", %listen, %error, "Status page: cannot be served");
                None
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn ready_when(&self, reasons: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.page.ready_when(reasons);
    }

    /// Shows a pool, until it is gone. Pools with the same name are numbered, so that none hides another.
    pub(crate) fn show<C: Connect>(&self, options: &Options, pool: PoolHandles<'_, C>) {
        let wanted = format!("{}/{}", options.service(), options.pool());
        let mut names = self.names.lock();
        let (mut name, mut number) = (wanted.clone(), 1);
        while names.get(&name).is_some_and(|exists| exists()) {
            number += 1;
            name = format!("{wanted} ({number})");
        }
        let reservoir = pool.reservoir.downgrade();
        names.insert(name.clone(), Box::new(move || reservoir.upgrade().is_some()));
        drop(names);
        self.page.pool(name, Source::new(pool));
    }
}

/// Cancel safe.
async fn serve(
    page: &StatusPage,
    listen: SocketAddr,
    token: Option<&Token>,
) -> Result<Server, Box<dyn Error + Send + Sync>> {
    // Sockets are tokio's, whatever the pool runs on.
    tokio::runtime::Handle::try_current()?;
    let listen = Listen::new(listen);
    let listen = match token {
        Some(token) => listen.token(forebay_status::Token::new(token.expose_secret())?),
        None => listen,
    };
    Ok(page.serve(listen).await?)
}

impl fmt::Debug for ServedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServedPage({})", self.address())
    }
}
