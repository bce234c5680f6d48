//! The PostgreSQL protocol, version 3, as bytes.

pub(crate) mod backend;
pub(crate) mod frontend;
pub(crate) mod stream;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As people write it.
    Text,
    /// As its type's binary form.
    Binary,
}

impl Format {
    fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::Text),
            1 => Some(Self::Binary),
            _ => None,
        }
    }

    /// The format of the `index`th value by the protocol's rule: none given means text, one given is for all.
    #[must_use]
    pub fn of(formats: &[Self], index: usize) -> Self {
        match formats {
            [] => Self::Text,
            [all] => *all,
            each => each.get(index).copied().unwrap_or(Self::Text),
        }
    }
}
