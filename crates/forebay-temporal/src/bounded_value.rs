//! Values of a statement that fit into one message.

use std::error::Error;
use std::fmt;

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type};

use crate::connection::Value;

/// The longest message that is sent. Aurora DSQL takes 10 MiB; a little follows the values.
const LONGEST: usize = (10 << 20) - (1 << 10);

/// A value that is refused if the message gets too long with it. The server would close the connection without a word, and so it would
/// with every repetition.
pub(crate) struct BoundedValue<'a>(pub(crate) Value<'a>);

/// The values of a statement are too long for one message.
#[derive(Debug, thiserror::Error)]
#[error("the values of this statement are too long for one message")]
pub(crate) struct MessageTooLong;

impl ToSql for BoundedValue<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql_checked(ty, out)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let is_null = self.0.to_sql_checked(ty, out)?;
        // The buffer has the whole message up to here.
        if out.len() > LONGEST { Err(MessageTooLong.into()) } else { Ok(is_null) }
    }

    fn encode_format(&self, ty: &Type) -> Format {
        self.0.encode_format(ty)
    }
}

/// The driver logs values when it is told to log everything. Their content belongs to the users of workflows.
impl fmt::Debug for BoundedValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}
