//! The id of a task queue: a hash of its name.

use std::fmt;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The id of a task queue, as rows have it.
///
/// A server names a task queue with some bytes: its namespace, its name, its type. They are too long for a key, so the id is a hash of
/// them. It is hashed exactly once: an id that comes from a row, or from a page token, has this type already, and nothing hashes this
/// type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskQueueId(Uuid);

impl TaskQueueId {
    /// The id of the queue that a server names with these bytes: the first 16 bytes of their SHA-256, with the version (4) and the
    /// variant (RFC 4122) of a UUID written over them. The plugin in Go does the same.
    #[must_use]
    pub fn hash(name: &[u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(name).into();
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_random_bytes(first).into_uuid())
    }

    /// The id as it stands in a row.
    #[must_use]
    pub const fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    /// As it stands in a row.
    #[must_use]
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl fmt::Display for TaskQueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskQueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskQueueId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the plugin in Go have such ids. SHA-256 of "abc" begins with ba7816bf 8f01cfea 414140de 5dae2223.
    #[test]
    fn an_id_is_the_beginning_of_a_sha_256_with_the_bits_of_a_uuid() {
        let id = TaskQueueId::hash(b"abc");
        assert_eq!(id.to_string(), "ba7816bf-8f01-4fea-8141-40de5dae2223");
        assert_eq!(TaskQueueId::from_uuid(*id.as_uuid()), id, "what comes from a row is not hashed again");
    }
}
