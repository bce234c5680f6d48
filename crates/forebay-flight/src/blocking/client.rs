//! One connection, for one thread.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use forebay::rt;
use tokio::sync::oneshot;

use super::runtime_thread::RuntimeThread;
use super::session::Session;
use crate::connection::ConnectOptions;
use crate::error::{Error, Result};
use crate::session::AsyncSession;

/// How long closing a dropped client may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection to a Flight SQL server: one session, whose statements run one after another. It derefs to
/// [`Session`], which has the methods.
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
    /// Connects to an endpoint, or with [`ConnectOptions`].
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid endpoint, [`Error::Transport`] if the server cannot be reached,
    /// [`Error::Server`] if it refuses the credentials.
    pub fn connect<E>(to: E) -> Result<Self>
    where
        E: TryInto<ConnectOptions>,
        Error: From<E::Error>,
    {
        let options = to.try_into()?;
        let thread = RuntimeThread::start()?;
        let session = thread.block_on(AsyncSession::connect_on(thread.runtime(), options))?;
        Ok(Self { session: Some(Session::own(session, thread)) })
    }

    /// Ends the session, on the server too if it supports that. Dropping the client does the same in the
    /// background.
    ///
    /// # Errors
    /// None at present: a server that does not answer is ignored.
    pub fn close(mut self) -> Result<()> {
        match self.session.take().and_then(Session::into_own) {
            Some((session, thread)) => thread.block_on(session.close()),
            None => Ok(()),
        }
    }
}

impl Drop for FlightSQLClient {
    fn drop(&mut self) {
        if let Some((session, thread)) = self.session.take().and_then(Session::into_own) {
            // Prepared statements that are still held stop working now.
            session.connection.end_checkout();
            let runtime = thread.runtime();
            let (closing, closed) = oneshot::channel::<()>();
            thread.spawn(async move {
                rt::within(&*runtime, CLOSE_TIMEOUT, session.close()).await;
                drop(closing);
            });
            thread.run_last(async move { drop(closed.await) });
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
