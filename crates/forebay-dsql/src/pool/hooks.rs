//! What a program does with each connection: after it is opened or reset, before it is lent, after it comes back.

use std::pin::Pin;
use std::time::Duration;

use forebay::rt;
use forebay::{BoxError, CheckoutError, Connect, Failure, OpenError};

use crate::driver::Driver;
use crate::error::ErrorKind;
use crate::pool::DsqlPool;
use crate::pool::pooled_connection::PooledConnection;
use crate::pool::registry::ConnectionInfo;

/// What a hook returns: see [`Builder::after_connect`](crate::Builder::after_connect).
pub type HookFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send + 'a>>;

type Hook<T, O> = Box<dyn for<'a> Fn(&'a mut T, ConnectionInfo) -> HookFuture<'a, O> + Send + Sync>;

/// Accepts the settings of a connection as those of a clean one.
type Settle<C> = for<'a> fn(&'a C, &'a mut <C as Connect>::Connection) -> HookFuture<'a, ()>;

/// The hooks of a pool.
pub(crate) struct Hooks<C: Connect> {
    pub(crate) after_connect: Option<Hook<C::Connection, ()>>,
    pub(crate) before_acquire: Option<Hook<C::Connection, bool>>,
    pub(crate) after_release: Option<Hook<C::Connection, bool>>,
    /// None if the connector is not a driver.
    settle: Option<Settle<C>>,
    is_settled: fn(&C::Connection) -> bool,
}

impl<C: Connect> Default for Hooks<C> {
    fn default() -> Self {
        Self {
            after_connect: None,
            before_acquire: None,
            after_release: None,
            settle: None,
            is_settled: |_| false,
        }
    }
}

impl<C: Driver> Hooks<C> {
    pub(crate) fn of_driver() -> Self {
        Self {
            settle: Some(|driver, connection| Box::pin(driver.settle(connection))),
            is_settled: C::is_settled,
            ..Self::default()
        }
    }
}

impl<C: Connect> Hooks<C> {
    /// Whether callers wait for a hook, or the end of a loan does.
    pub(crate) fn are_about_loans(&self) -> bool {
        self.before_acquire.is_some() || self.after_release.is_some()
    }

    /// After a reset: runs `after_connect` again, if its settings were undone. Cancel safe as [`connected`](Self::connected).
    pub(crate) async fn reset(
        &self,
        connector: &C,
        connection: &mut C::Connection,
        info: ConnectionInfo,
    ) -> Result<(), BoxError> {
        if (self.is_settled)(connection) { Ok(()) } else { self.connected(connector, connection, info).await }
    }

    /// Runs `after_connect`, if there is one. What it has set is then what a clean connection has. Cancel safe: the connection is
    /// not used if this is dropped.
    pub(crate) async fn connected(
        &self,
        connector: &C,
        connection: &mut C::Connection,
        info: ConnectionInfo,
    ) -> Result<(), BoxError> {
        let Some(hook) = &self.after_connect else { return Ok(()) };
        call("after_connect", hook, connection, info).await?;
        if let Some(settle) = self.settle {
            settle(connector, connection).await.map_err(|error| failed("after_connect", error))?;
        } else if !connector.is_clean(connection) {
            return Err(failed("after_connect", "it left the connection dirty".into()));
        }
        Ok(())
    }

    /// Asks `after_release`, if there is one, whether the connection is lent again. Cancel safe as [`connected`](Self::connected).
    pub(crate) async fn released(
        &self,
        connection: &mut C::Connection,
        info: ConnectionInfo,
    ) -> Result<(), BoxError> {
        let Some(hook) = &self.after_release else { return Ok(()) };
        if call("after_release", hook, connection, info).await? {
            Ok(())
        } else {
            Err("the hook after_release has rejected the connection".into())
        }
    }
}

/// Calls a hook. A plain statement on a connection that was idle meets the last change of the schema, once: then the hook is called
/// again.
async fn call<T, O>(
    name: &'static str,
    hook: &Hook<T, O>,
    connection: &mut T,
    info: ConnectionInfo,
) -> Result<O, BoxError> {
    match hook(connection, info).await {
        Err(error) if matches!(ErrorKind::of(&*error), ErrorKind::Conflict(_)) => {
            hook(connection, info).await.map_err(|error| failed(name, error))
        }
        outcome => outcome.map_err(|error| failed(name, error)),
    }
}

/// A hook failed.
#[derive(Debug, thiserror::Error)]
#[error("the hook {hook} failed: {error}")]
struct HookFailed {
    hook: &'static str,
    #[source]
    error: BoxError,
}

fn failed(hook: &'static str, error: BoxError) -> BoxError {
    HookFailed { hook, error }.into()
}

/// What a caller knows of a connection after the hook.
enum Admission {
    Lend,
    /// The hook has rejected it, or did not say what it thinks of it.
    Reject(BoxError),
    /// The time of the caller is up. The connection may be as good as before.
    TimeIsUp,
}

impl<C: Connect> DsqlPool<C> {
    /// Takes a connection, waiting for as long as the configuration says, or for at most `wait`. Cancel safe.
    pub(crate) async fn lend(
        &self,
        wait: Option<Duration>,
    ) -> Result<PooledConnection<'_, C>, CheckoutError> {
        if !self.connector.hooks().are_about_loans() {
            return self.take(wait).await;
        }
        let began = self.runtime.now();
        let until = began + wait.unwrap_or(self.acquire_timeout);
        let mut next = wait;
        loop {
            let lent = self.take(next).await;
            let mut connection = lent.map_err(|error| self.waited_since(began, error))?;
            let left = until.since(self.runtime.now());
            let error = match self.admit(&mut connection, left).await {
                Admission::Lend => return Ok(connection),
                Admission::Reject(error) => error,
                Admission::TimeIsUp => "the hook before_acquire took longer than the caller waits".into(),
            };
            let now = self.runtime.now();
            // The hook rejects even a connection that was opened meanwhile. Others would cost the cluster an open each, in vain.
            let is_new = connection.0.info().age <= now.since(began);
            drop(connection);
            let left = until.since(now);
            if left.is_zero() || is_new {
                let last_open_error = Some(OpenError::new(Failure::Open, error).into());
                return Err(self.waited_since(began, CheckoutError::Empty { waited: left, last_open_error }));
            }
            next = Some(left);
        }
    }

    /// Takes a connection that is ready, if there is one. Cancel safe.
    pub(crate) async fn lend_ready(&self) -> Result<PooledConnection<'_, C>, CheckoutError> {
        loop {
            let mut connection = PooledConnection(self.reservoir.try_checkout()?);
            if matches!(self.admit(&mut connection, Duration::MAX).await, Admission::Lend) {
                return Ok(connection);
            }
        }
    }

    /// Asks `before_acquire`, if there is one, whether the connection is lent, and waits for at most `left`. Marks one that is not.
    ///
    /// Cancel safe: the connection goes back, and is reset first if the hook has left something behind.
    async fn admit(&self, connection: &mut PooledConnection<'_, C>, left: Duration) -> Admission {
        let Some(hook) = &self.connector.hooks().before_acquire else {
            connection.0.lent();
            return Admission::Lend;
        };
        let info = connection.0.info();
        let limit = self.maintenance_timeout.min(left);
        let guard = RejectOnPanic(connection);
        let call = call("before_acquire", hook, guard.0, info);
        let outcome = rt::within(&*self.runtime, limit, call).await;
        let admission = match outcome {
            Some(Ok(true)) => Admission::Lend,
            Some(Ok(false)) => {
                Admission::Reject("the hook before_acquire has rejected the connection".into())
            }
            Some(Err(error)) => Admission::Reject(error),
            None if limit < left => {
                Admission::Reject(format!("the hook before_acquire took longer than {limit:?}").into())
            }
            None => Admission::TimeIsUp,
        };
        match &admission {
            Admission::Lend => guard.0.0.lent(),
            Admission::TimeIsUp => {}
            Admission::Reject(error) => {
                tracing::warn!(%error, "DSQL pool: a connection is closed instead of being lent");
                if ErrorKind::of(&**error) == ErrorKind::Disconnected {
                    guard.0.mark_bad();
                } else {
                    // It is no sign that others are dead.
                    self.registry.retire(info.id);
                }
            }
        }
        admission
    }
}

/// Marks a connection whose hook panics, so that it is closed when the panic drops it.
struct RejectOnPanic<'g, 'a, C: Connect>(&'g mut PooledConnection<'a, C>);

impl<C: Connect> Drop for RejectOnPanic<'_, '_, C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.0.mark_bad();
        }
    }
}
