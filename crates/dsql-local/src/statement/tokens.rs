//! Splits a statement into tokens.

use std::ops::Range;

use super::{comment_end, dollar_end, is_word, line_comment_end, quoted_end, word_end};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    QuotedName,
    Literal,
    Sign,
}

#[derive(Clone, Debug)]
struct Piece {
    kind: Kind,
    range: Range<usize>,
}

/// Splits a statement into tokens. Words are in upper case, at any depth; every other character is a token. A
/// quoted name is `"`, a literal `'`. Spaces and comments are dropped.
pub(crate) fn tokens(sql: &str) -> Vec<String> {
    spans(sql).into_iter().map(|(token, _)| token).collect()
}

/// Whether these tokens follow each other.
pub(crate) fn has(tokens: &[String], words: &[&str]) -> bool {
    tokens.windows(words.len()).any(|window| window == words)
}

/// The tokens with their positions in the text.
pub(crate) fn spans(sql: &str) -> Vec<(String, Range<usize>)> {
    let token = |piece: Piece| {
        let token = match piece.kind {
            Kind::Word => sql[piece.range.clone()].to_ascii_uppercase(),
            Kind::QuotedName => "\"".to_owned(),
            Kind::Literal => "'".to_owned(),
            Kind::Sign => sql[piece.range.clone()].to_owned(),
        };
        (token, piece.range)
    };
    pieces(sql).into_iter().map(token).collect()
}

/// All words and quoted names, as the catalog would have them.
pub(crate) fn names(sql: &str) -> Vec<String> {
    pieces(sql).iter().filter_map(|piece| name(sql, piece)).collect()
}

/// Replaces qualified names; `other` returns the replacement.
pub(crate) fn requalify(sql: &str, other: impl Fn(&str, &str) -> Option<String>) -> String {
    let pieces = pieces(sql);
    let (mut result, mut done) = (String::with_capacity(sql.len()), 0);
    for window in pieces.windows(3) {
        let [schema, dot, table] = window else { continue };
        if dot.kind != Kind::Sign || &sql[dot.range.clone()] != "." || schema.range.start < done {
            continue;
        }
        let (Some(known), Some(name)) = (name(sql, schema), name(sql, table)) else { continue };
        if let Some(other) = other(&known, &name) {
            result += &sql[done..schema.range.start];
            result += &other;
            done = table.range.end;
        }
    }
    result + &sql[done..]
}

fn name(sql: &str, piece: &Piece) -> Option<String> {
    let text = &sql[piece.range.clone()];
    match piece.kind {
        Kind::Word => Some(cut(text.to_ascii_lowercase())),
        Kind::QuotedName => Some(cut(text.trim_matches('"').replace("\"\"", "\""))),
        Kind::Literal | Kind::Sign => None,
    }
}

/// PostgreSQL truncates long names.
fn cut(mut name: String) -> String {
    const LONGEST: usize = 63;
    if name.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        name.truncate(end);
    }
    name
}

fn pieces(sql: &str) -> Vec<Piece> {
    let bytes = sql.as_bytes();
    let (mut at, mut pieces) = (0, Vec::new());
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        let (kind, end) = match byte {
            _ if byte.is_ascii_whitespace() => (None, at + 1),
            b'-' if next == Some(b'-') => (None, line_comment_end(bytes, at)),
            b'/' if next == Some(b'*') => (None, comment_end(bytes, at)),
            b'\'' => (Some(Kind::Literal), quoted_end(bytes, at, b'\'', false)),
            b'"' => (Some(Kind::QuotedName), quoted_end(bytes, at, b'"', false)),
            b'$' => (Some(Kind::Literal), dollar_end(sql, at)),
            b'e' | b'E' if next == Some(b'\'') => {
                (Some(Kind::Literal), quoted_end(bytes, at + 1, b'\'', true).min(bytes.len()))
            }
            _ if is_word(byte) => (Some(Kind::Word), word_end(bytes, at)),
            _ => (Some(Kind::Sign), at + 1),
        };
        pieces.extend(kind.map(|kind| Piece { kind, range: at..end }));
        at = end;
    }
    pieces
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

    #[test]
    fn names_are_as_the_catalog_has_them() {
        assert_eq!(
            names("SELECT Ab, \"Cd\"\"e\" FROM s.t -- x"),
            ["select", "ab", "Cd\"e", "from", "s", "t"]
        );
    }

    #[test]
    fn qualified_names_are_replaced() {
        let other = |schema: &str, name: &str| (schema == "s" && name == "t").then(|| "x.y".to_owned());
        let sql = "SELECT S.t.a, s.u, 's.t' FROM s . t, \"s\".\"t\" é";
        assert_eq!(requalify(sql, other), "SELECT x.y.a, s.u, 's.t' FROM x.y, x.y é");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(sql in "[a-zA-Z'\"$;*/\\-\\\\ é\n()]{0,60}") {
            tokens(&sql);
            names(&sql);
            prop_assert_eq!(requalify(&sql, |_, _| None), sql);
        }
    }
}
