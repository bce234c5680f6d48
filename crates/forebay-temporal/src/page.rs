//! Pages of rows, and tokens for the next page.

use std::fmt;

use forebay_dsql::Timestamp;
use uuid::Uuid;

use crate::error::{Error, Result};

/// Some rows of a longer list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page begins; none after the last one.
    pub next: Option<PageToken>,
}

impl<T> Page<T> {
    /// Of `size + 1` rows asked for, the page and its token. The row too many only says that there is another page.
    pub(crate) fn cut<K: PageKey>(
        mut rows: Vec<T>,
        size: usize,
        list: &'static str,
        key: impl FnOnce(&T) -> K,
    ) -> Self {
        let more = rows.len() > size;
        rows.truncate(size);
        let last = rows.last().filter(|_| more);
        let next = last.map(|last| PageToken::after(list, &key(last)));
        Self { rows, next }
    }
}

/// How many rows to ask the database for: one more than the page has, so that the last page is known to be the last.
pub(crate) fn rows_to_ask(size: usize) -> Result<i64> {
    if size == 0 {
        return Err(Error::invalid("a page of 0 rows never ends: ask for 1 at least"));
    }
    Ok(i64::try_from(size).unwrap_or(i64::MAX).saturating_add(1))
}

/// Where a page begins. Keep it, send it, give it back; its content is nobody's business.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PageToken(Vec<u8>);

impl PageToken {
    /// A token that was sent as bytes. It is checked when it is used.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// As bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The page after the row with this key. `list` names what is listed, so that a token of another list is noticed.
    pub(crate) fn after(list: &'static str, key: &impl PageKey) -> Self {
        let mut bytes = Vec::new();
        write_text(list, &mut bytes);
        key.write(&mut bytes);
        Self(bytes)
    }

    /// The key that it stands for.
    pub(crate) fn key<K: PageKey>(&self, list: &'static str) -> Result<K> {
        let mut bytes = self.0.as_slice();
        let key = (String::read(&mut bytes).as_deref() == Some(list)).then(|| K::read(&mut bytes)).flatten();
        key.filter(|_| bytes.is_empty()).ok_or_else(|| {
            Error::invalid(format!("this page token is not one of {list}: begin with the first page"))
        })
    }
}

/// Tokens are opaque in logs, too.
impl fmt::Debug for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageToken({} bytes)", self.0.len())
    }
}

/// A key that a token can carry.
pub trait PageKey: Sized {
    fn write(&self, out: &mut Vec<u8>);

    /// Takes it from the beginning of `bytes`; none if they are something else.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(text.as_bytes());
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl PageKey for $number {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.to_be_bytes());
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                take(bytes).map(Self::from_be_bytes)
            }
        })*
    };
}

numbers!(i16, i32, i64, i128);

impl PageKey for Uuid {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.as_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes).map(Self::from_bytes)
    }
}

impl PageKey for Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        self.nanos().write(out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Self::from_nanos(i128::read(bytes)?).ok()
    }
}

impl PageKey for String {
    fn write(&self, out: &mut Vec<u8>) {
        write_text(self, out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let length = usize::try_from(u32::from_be_bytes(take(bytes)?)).ok()?;
        let (text, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

impl<A: PageKey, B: PageKey> PageKey for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::read(bytes)?, B::read(bytes)?))
    }
}

impl<A: PageKey, B: PageKey, C: PageKey> PageKey for (A, B, C) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
        self.2.write(out);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::read(bytes)?, B::read(bytes)?, C::read(bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_back_its_key_and_only_to_its_list() {
        let key = (i64::MIN, Uuid::from_u128(7), "schlüssel".to_owned());
        let token = PageToken::from_bytes(PageToken::after("messages", &key).as_bytes());
        assert_eq!(token.key::<(i64, Uuid, String)>("messages").unwrap(), key);
        let wrong = token.key::<(i64, Uuid, String)>("tasks").unwrap_err();
        assert!(wrong.to_string().contains("begin with the first page"), "{wrong}");
        assert!(token.key::<i64>("messages").is_err(), "more than a key");
        assert!(!format!("{token:?}").contains("messages"));
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let good = PageToken::after("a", &(1_i64, "text".to_owned()));
        for cut in 0..good.as_bytes().len() {
            assert!(PageToken::from_bytes(&good.as_bytes()[..cut]).key::<(i64, String)>("a").is_err());
        }
        assert!(PageToken::from_bytes([0xff; 40]).key::<i64>("a").is_err());
    }

    #[test]
    fn the_last_page_is_known_to_be_the_last() {
        let page = |rows: &[i64], size| Page::cut(rows.to_vec(), size, "n", |row| *row);
        assert_eq!(page(&[1, 2, 3], 2).rows, [1, 2]);
        assert_eq!(page(&[1, 2, 3], 2).next.unwrap().key::<i64>("n").unwrap(), 2);
        assert_eq!(page(&[1, 2], 2).next, None);
        assert_eq!(page(&[], 2).next, None);
        assert!(rows_to_ask(0).is_err());
        assert_eq!(rows_to_ask(usize::MAX).unwrap(), i64::MAX);
    }
}
