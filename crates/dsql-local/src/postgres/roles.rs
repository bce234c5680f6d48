//! Who may connect.

use std::sync::Arc;

use super::Inner;
use super::quoting::literal;
use super::server::SUPERUSER;
use crate::error::SqlError;

/// Who is there from the beginning, and whose token is another than all others'.
const ADMIN: &str = "admin";

/// A role. Another one may have the same name later: then it is not the same, and does not get its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) name: Arc<str>,
    /// Its number; none for those that are always there.
    oid: Option<String>,
}

impl Role {
    /// The one that owns the server.
    pub(super) fn superuser() -> Self {
        Self { name: SUPERUSER.into(), oid: None }
    }

    /// One that owns something, as the server writes its name.
    pub(super) fn owner(written: &str) -> Self {
        let name = written
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'))
            .map(|name| name.replace("\"\"", "\""));
        Self { name: name.unwrap_or_else(|| written.to_owned()).into(), oid: None }
    }
}

impl Inner {
    /// A role that may connect: `admin`, or one that may log in and is mapped to somebody of the cloud's.
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
