//! What a client is told when it is refused, in PostgreSQL's words where it has some.

use std::borrow::Cow;

/// PostgreSQL cuts names there.
const LONGEST_SHOWN: usize = 63;

/// What a client has sent, as answers and logs repeat it: no longer than a name, however long it was.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    cut(text, LONGEST_SHOWN)
}

/// At most so many bytes of a text, and dots if there are more.
pub(super) fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return text.into();
    }
    let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end]).into()
}

/// An error that ends the login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl Refusal {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None, hint: None }
    }

    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A message that breaks the protocol.
    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::new("08P01", message)
    }

    /// The same words whether the user exists or not.
    pub(super) fn password(user: &str) -> Self {
        Self::new("28P01", format!("password authentication failed for user \"{}\"", shown(user)))
    }

    /// The ErrorResponse.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let fields = [
            (b'S', Some("FATAL")),
            (b'V', Some("FATAL")),
            (b'C', Some(self.code)),
            (b'M', Some(self.message.as_str())),
            (b'D', self.detail.as_deref()),
            (b'H', self.hint.as_deref()),
        ];
        message(out, b'E', |out| {
            for (field, text) in fields {
                let Some(text) = text else { continue };
                out.push(field);
                // A NUL would end the field, and the rest of it would be read as others.
                out.extend(text.bytes().filter(|byte| *byte != 0));
                out.push(0);
            }
            out.push(0);
        });
    }
}

/// Adds a message: its kind, its length, and what `body` writes.
pub(super) fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend([0; 4]);
    body(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let (short, long) = ("x".repeat(63), "x".repeat(64));
        assert_eq!((shown(&short), shown(&long)), (short.as_str().into(), format!("{short}...").into()));
        // Characters of two bytes: 63 would be in the middle of one.
        assert_eq!(shown(&"\u{e4}".repeat(50)), "\u{e4}".repeat(31) + "...");
        assert_eq!(shown(&"\u{1f600}".repeat(50)), "\u{1f600}".repeat(15) + "...");
    }
}
