//! Cluster membership: the hosts that say that they are alive.

use std::fmt::Write as _;

use forebay_dsql::{ErrorKind, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::batch;
use crate::connection::{Connection, Value};
use crate::error::{Error, Result};
use crate::page::{Page, PageToken, rows_to_ask};
use crate::persistence::Persistence;

/// The only partition.
const PARTITION: i32 = 0;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Which it is: a new one with every start.
    pub host_id: Uuid,
    /// Where it listens; at most 128 characters.
    pub rpc_address: String,
    /// The port; at most 32767, which is what the column can hold.
    pub rpc_port: u16,
    /// The service that it runs, as the server numbers them.
    pub role: i16,
    /// When it started.
    pub session_start: Timestamp,
    /// When it last said that it is alive.
    pub last_heartbeat: Timestamp,
    /// When the row may be deleted.
    pub record_expiry: Timestamp,
}

/// Which hosts to read. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberFilter {
    /// Only this host.
    pub host_id: Option<Uuid>,
    /// Only hosts that listen here.
    pub rpc_address: Option<String>,
    /// Only hosts that run this service.
    pub role: Option<i16>,
    /// Only hosts whose last heartbeat came after this time.
    pub last_heartbeat_after: Option<Timestamp>,
    /// Only hosts whose rows expire after this time.
    pub record_expiry_after: Option<Timestamp>,
    /// Only hosts that started at this time or later.
    pub session_started_since: Option<Timestamp>,
}

const UPSERT: &str = "INSERT INTO cluster_membership (membership_partition, host_id, rpc_address, rpc_port, role, \
     session_start, last_heartbeat, record_expiry) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
     ON CONFLICT (membership_partition, host_id) DO UPDATE SET rpc_address = excluded.rpc_address, \
     rpc_port = excluded.rpc_port, role = excluded.role, session_start = excluded.session_start, \
     last_heartbeat = excluded.last_heartbeat, record_expiry = excluded.record_expiry";
const SELECT: &str = "SELECT host_id, rpc_address, rpc_port, role, session_start, last_heartbeat, record_expiry \
     FROM cluster_membership WHERE membership_partition = $1";
const PRUNE: &str = "DELETE FROM cluster_membership WHERE membership_partition = $1 AND host_id IN \
     (SELECT host_id FROM cluster_membership WHERE membership_partition = $1 AND record_expiry < $2 ORDER BY host_id LIMIT $3)";
const LIST: &str = "members of a cluster";

/// Writes the row of a host.
///
/// # Errors
/// [`Error::InvalidInput`] for a port that the column cannot hold; those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been written.
pub async fn upsert(connection: &Connection, member: &MemberRow) -> Result<()> {
    let MemberRow { host_id, rpc_address, rpc_port, role, session_start, last_heartbeat, record_expiry } =
        member;
    let rpc_port = i16::try_from(*rpc_port).map_err(|_| {
        Error::invalid(format!("the table cannot hold the port {rpc_port}: listen on one up to {}", i16::MAX))
    })?;
    let values: [Value<'_>; 8] =
        [&PARTITION, host_id, rpc_address, &rpc_port, role, session_start, last_heartbeat, record_expiry];
    connection.execute(UPSERT, &values).await?;
    Ok(())
}

/// Reads a page of at most `size` hosts that fit the filter, in the order of their ids.
///
/// # Errors
/// [`Error::InvalidInput`] for a size of 0, or a token of another list; those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn get(
    connection: &Connection,
    filter: &MemberFilter,
    size: usize,
    page: Option<&PageToken>,
) -> Result<Page<MemberRow>> {
    let limit = rows_to_ask(size)?;
    let after = page.map(|token| token.key::<Uuid>(LIST)).transpose()?;
    let (mut sql, mut values) = (SELECT.to_owned(), vec![&PARTITION as Value<'_>]);
    for (column, value) in filter.terms().into_iter().chain([("host_id >", value(after.as_ref()))]) {
        if let Some(value) = value {
            values.push(value);
            let _ = write!(sql, " AND {column} ${}", values.len());
        }
    }
    values.push(&limit);
    let _ = write!(sql, " ORDER BY host_id LIMIT ${}", values.len());
    let rows = connection.query(&sql, &values).await?;
    let rows = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Page::cut(rows, size, LIST, |row| row.host_id))
}

/// Deletes the rows of at most `limit` hosts that expired before this time, with one statement. Returns how many. For all of them, however
/// many, there is [`prune`].
///
/// # Errors
/// [`Error::TooLarge`] if they are too many.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn prune_at_most(connection: &Connection, expired_before: Timestamp, limit: usize) -> Result<u64> {
    let limit = batch::limit(limit);
    connection.execute(PRUNE, &[&PARTITION, &expired_before, &limit]).await
}

/// Deletes the rows of all hosts that expired before this time, however many, in several transactions. Returns how many. Whoever is
/// interrupted calls it again.
///
/// # Errors
/// Those of the database; some rows may be deleted then.
///
/// # Cancel safety
/// Some rows are deleted, the others are not. Call it again.
pub async fn prune(persistence: &Persistence, expired_before: Timestamp) -> Result<u64> {
    let delete = |connection: Connection, limit: usize| async move {
        prune_at_most(&connection, expired_before, limit).await
    };
    persistence.delete_in_batches("prune_cluster_membership", delete).await
}

impl MemberFilter {
    /// What to compare, and with what, if at all.
    fn terms(&self) -> [(&'static str, Option<Value<'_>>); 6] {
        [
            ("host_id =", value(self.host_id.as_ref())),
            ("rpc_address =", value(self.rpc_address.as_ref())),
            ("role =", value(self.role.as_ref())),
            ("last_heartbeat >", value(self.last_heartbeat_after.as_ref())),
            ("record_expiry >", value(self.record_expiry_after.as_ref())),
            ("session_start >=", value(self.session_started_since.as_ref())),
        ]
    }
}

fn value<T: tokio_postgres::types::ToSql + Sync>(option: Option<&T>) -> Option<Value<'_>> {
    option.map(|value| value as Value<'_>)
}

fn read(row: &Row) -> Result<MemberRow> {
    let rpc_port: i16 = row.try_get(2)?;
    let rpc_port = u16::try_from(rpc_port).map_err(|_| {
        let told = format!("a member of the cluster has the port {rpc_port}: delete its row");
        Error::Database(forebay_dsql::Error::new(ErrorKind::Permanent, told))
    })?;
    Ok(MemberRow {
        host_id: row.try_get(0)?,
        rpc_address: row.try_get(1)?,
        rpc_port,
        role: row.try_get(3)?,
        session_start: row.try_get(4)?,
        last_heartbeat: row.try_get(5)?,
        record_expiry: row.try_get(6)?,
    })
}
