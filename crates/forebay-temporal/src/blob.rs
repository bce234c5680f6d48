//! Serialized values, as the server hands them over.

use std::fmt;

use tokio_postgres::Row;

use crate::error::Result;

/// A serialized value and its encoding, such as `Proto3`. The stores do not look into it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Blob {
    /// The bytes.
    pub data: Vec<u8>,
    /// How they are encoded; at most 16 characters.
    pub encoding: String,
}

impl Blob {
    /// A value in this encoding.
    pub fn new(data: impl Into<Vec<u8>>, encoding: impl Into<String>) -> Self {
        Self { data: data.into(), encoding: encoding.into() }
    }

    /// A value encoded as `Proto3`.
    pub fn proto3(data: impl Into<Vec<u8>>) -> Self {
        Self::new(data, "Proto3")
    }

    /// From two columns, `data` and its encoding. Where the encoding may be NULL, that counts as empty.
    pub(crate) fn read(row: &Row, data: usize) -> Result<Self> {
        let encoding: Option<String> = row.try_get(data + 1)?;
        Ok(Self { data: row.try_get(data)?, encoding: encoding.unwrap_or_default() })
    }
}

/// Its content belongs to the users of workflows, so it is not printed.
impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes of {:?})", self.data.len(), self.encoding)
    }
}
