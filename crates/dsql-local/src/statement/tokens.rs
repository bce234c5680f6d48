//! The words and signs of a statement, whatever they mean.

use std::ops::Range;

use super::{comment_end, dollar_end, is_word, quoted_end, word_end};

/// Every word in capitals, at any depth, and every other sign on its own; a quoted name is `"`, a literal `'`. Space and
/// comments are nothing.
pub(crate) fn tokens(sql: &str) -> Vec<String> {
    spans(sql).into_iter().map(|(token, _)| token).collect()
}

/// The same, each with its place in the text.
pub(crate) fn spans(sql: &str) -> Vec<(String, Range<usize>)> {
    let bytes = sql.as_bytes();
    let (mut at, mut tokens) = (0, Vec::new());
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        let (token, end) = match byte {
            _ if byte.is_ascii_whitespace() => (None, at + 1),
            b'-' if next == Some(b'-') => {
                (None, at + bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at))
            }
            b'/' if next == Some(b'*') => (None, comment_end(bytes, at)),
            b'\'' => (Some("'".to_owned()), quoted_end(bytes, at, b'\'', false)),
            b'"' => (Some("\"".to_owned()), quoted_end(bytes, at, b'"', false)),
            b'$' => (Some("'".to_owned()), dollar_end(sql, at)),
            b'e' | b'E' if next == Some(b'\'') => {
                (Some("'".to_owned()), quoted_end(bytes, at + 1, b'\'', true))
            }
            _ if is_word(byte) => {
                let end = word_end(bytes, at);
                (Some(sql[at..end].to_ascii_uppercase()), end)
            }
            _ => (Some(char::from(byte).to_string()), at + 1),
        };
        tokens.extend(token.map(|token| (token, at..end)));
        at = end;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn literals_names_and_comments_hide_their_words() {
        let sql = "SELECT 'for share', \"x\", E'\\'a', $$b$$ /* c */ FROM (t) -- d";
        assert_eq!(tokens(sql).join(" "), "SELECT ' , \" , ' , ' FROM ( T )");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(sql in "[a-zA-Z'\"$;*/\\-\\\\ é\n()]{0,60}") {
            tokens(&sql);
        }
    }
}
