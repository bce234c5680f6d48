//! The roles that may connect.

use std::sync::Arc;

use super::Inner;
use super::quoting::literal;
use super::server::SUPERUSER;
use crate::error::SqlError;

/// The role that always exists, and has its own kind of token.
const ADMIN: &str = "admin";

/// A role. If it is dropped and created again, the new one has another OID and does not get the old
/// connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) name: Arc<str>,
    /// None for the roles that always exist.
    oid: Option<String>,
}

impl Role {
    pub(super) fn superuser() -> Self {
        Self { name: SUPERUSER.into(), oid: None }
    }

    /// The owner of an object, from the name as the server quotes it.
    pub(super) fn owner(written: &str) -> Self {
        let name = written
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'))
            .map(|name| name.replace("\"\"", "\""));
        Self { name: name.unwrap_or_else(|| written.to_owned()).into(), oid: None }
    }
}

impl Inner {
    /// Looks up a role that may connect: `admin`, or one with LOGIN that is mapped to an IAM identity.
    pub(super) async fn role(&self, name: &str) -> Result<Role, SqlError> {
        if name == ADMIN {
            return Ok(Role { name: name.into(), oid: None });
        }
        let mut backend = self.backend(&Role::superuser(), &[]).await?;
        let sql = format!(
            "SELECT oid, rolcanlogin AND EXISTS (SELECT FROM pg_catalog.dsql_local_iam WHERE role = oid)
             FROM pg_catalog.pg_roles WHERE NOT rolsuper AND rolname = {}",
            literal(name)
        );
        let found = backend.rows(&sql).await;
        self.release(backend);
        match found?.pop() {
            Some([oid, may_log_in]) if may_log_in == "t" => Ok(Role { name: name.into(), oid: Some(oid) }),
            Some(_) => Err(SqlError::access_denied()),
            None => {
                let message = format!("unable to accept connection, role \"{name}\" does not exist");
                Err(SqlError::new("28000", message))
            }
        }
    }
}
