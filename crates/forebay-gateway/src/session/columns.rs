//! The columns of a result, as far as a client that has seen them relies on them.

use sha2::{Digest, Sha256};

use crate::protocol::split_string;

/// A digest of the columns of a result: of each its name, its type and the modifier of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns([u8; 32]);

impl Columns {
    /// Those of the body of a RowDescription. Empty: of NoData.
    pub(super) fn of(body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        for (name, kind, modifier) in columns(body) {
            digest.update(name);
            // Behind a name, which has no zero byte.
            digest.update([0]);
            digest.update(kind);
            digest.update(modifier);
        }
        Self(digest.finalize().into())
    }
}

/// Of each column: its name, the type and the modifier.
fn columns(body: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
    let mut rest = body.get(2..).unwrap_or_default();
    let mut has = !body.is_empty();
    std::iter::from_fn(move || {
        // NoData and a description without columns are not the same.
        if std::mem::take(&mut has) {
            return Some((&[][..], &[][..], &[][..]));
        }
        let (name, behind) = split_string(rest)?;
        let (fixed, behind) = behind.split_at_checked(18)?;
        rest = behind;
        Some((name, &fixed[6..10], &fixed[12..16]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(columns: &[(&str, u32)]) -> Vec<u8> {
        let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
        for (name, kind) in columns {
            body.extend(name.as_bytes());
            body.extend([0; 7]);
            body.extend(kind.to_be_bytes());
            body.extend([0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        }
        body
    }

    #[test]
    fn names_types_and_their_number_count() {
        let columns = |columns: &[(&str, u32)]| Columns::of(&description(columns));
        let one = columns(&[("a", 23)]);
        assert_eq!(one, columns(&[("a", 23)]));
        for other in
            [columns(&[("b", 23)]), columns(&[("a", 25)]), columns(&[("a", 23), ("b", 23)]), columns(&[])]
        {
            assert_ne!(one, other);
        }
        assert_ne!(columns(&[]), Columns::of(&[]), "NoData is not a result without columns");
    }
}
