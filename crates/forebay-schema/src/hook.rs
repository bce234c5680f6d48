//! What an application does itself when a version is applied.

use std::pin::Pin;

use tokio_postgres::Client;

use crate::files::MigrationFile;
use crate::version::Version;

/// The future of [`Hook::applied`].
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<(), forebay_dsql::Error>> + Send + 'a>>;

/// Writes an application's own record of its versions, such as a table that an older tool reads.
pub trait Hook: Send + Sync {
    /// Called in the transaction that records `file` as applied, after its last statement: both are committed, or
    /// none is. `previous` is the version before it, if there was one.
    ///
    /// It may change rows with `client`, but neither the schema nor the transaction. The transaction is run again after a conflict,
    /// so apart from that it must be safe to call twice.
    fn applied<'a>(
        &'a self,
        client: &'a Client,
        file: &'a MigrationFile,
        previous: Option<&'a Version>,
    ) -> HookFuture<'a>;
}

impl Hook for Box<dyn Hook> {
    fn applied<'a>(
        &'a self,
        client: &'a Client,
        file: &'a MigrationFile,
        previous: Option<&'a Version>,
    ) -> HookFuture<'a> {
        (**self).applied(client, file, previous)
    }
}
