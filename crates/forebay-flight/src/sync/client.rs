//! One connection, for one thread.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use forebay::rt;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::options::ConnectOptions;
use crate::session::AsyncSession;
use crate::sync::engine::Engine;
use crate::sync::session::Session;

/// How long the good-bye of a dropped client may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// One connection to a Flight SQL server: one session, whose statements run one after another. It derefs to [`Session`], which has
/// the methods.
///
/// ```
/// # use flight_local::{Config, FlightLocal};
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
/// # let server = runtime.block_on(FlightLocal::start(Config::default()))?;
/// # let url = server.url();
/// use forebay_flight::FlightSQLClient;
///
/// let mut client = FlightSQLClient::connect(url.as_str())?;
/// client.update("CREATE TABLE t (a INTEGER)")?;
/// client.begin_transaction()?;
/// client.update("INSERT INTO t VALUES (1)")?;
/// client.commit()?;
/// assert_eq!(client.query("SELECT * FROM t")?.row_count(), 1);
/// client.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FlightSQLClient {
    /// There until it is closed or dropped.
    session: Option<Session>,
}

const OPEN: &str = "there until it is closed or dropped";

impl FlightSQLClient {
    /// Connects to an endpoint, or as [`ConnectOptions`] say.
    ///
    /// # Errors
    /// [`Error::Config`] for an endpoint that is none, [`Error::Transport`] if the server cannot be reached,
    /// [`Error::Server`] if it refuses the credentials.
    pub fn connect<E>(to: E) -> Result<Self>
    where
        E: TryInto<ConnectOptions>,
        Error: From<E::Error>,
    {
        let options = to.try_into()?;
        let engine = Engine::start()?;
        let session = engine.block_on(AsyncSession::connect_on(engine.runtime(), options))?;
        Ok(Self { session: Some(Session::own(session, engine)) })
    }

    /// Ends the session: on the server too, where it knows how. Dropping the client does the same without waiting for it.
    ///
    /// # Errors
    /// None today: a server that does not answer is left to itself.
    pub fn close(mut self) -> Result<()> {
        match self.session.take().and_then(Session::into_own) {
            Some((session, engine)) => engine.block_on(session.close()),
            None => Ok(()),
        }
    }
}

impl Drop for FlightSQLClient {
    fn drop(&mut self) {
        if let Some((session, engine)) = self.session.take().and_then(Session::into_own) {
            // At once, also if what was prepared is still held and the thread goes on for it.
            session.link.end_tenancy();
            let runtime = engine.runtime();
            let (gone, is_gone) = oneshot::channel::<()>();
            engine.spawn(async move {
                rt::within(&*runtime, FAREWELL, session.close()).await;
                drop(gone);
            });
            engine.at_end(async move { drop(is_gone.await) });
        }
    }
}

impl Deref for FlightSQLClient {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect(OPEN)
    }
}

impl DerefMut for FlightSQLClient {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect(OPEN)
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
