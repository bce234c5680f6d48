use proptest::prelude::*;

use super::*;

/// Statements as their text, commands with their backslash.
fn shown(pieces: Vec<Piece>) -> Vec<String> {
    pieces
        .into_iter()
        .map(|piece| match piece {
            Piece::Statement(statement) => statement.text,
            Piece::Command(line) => format!("\\{line}"),
        })
        .collect()
}

fn split(text: &str) -> Vec<String> {
    let mut splitter = Splitter::default();
    let mut pieces = splitter.feed(text);
    pieces.extend(splitter.finish().expect("it is finished"));
    shown(pieces)
}

#[test]
fn semicolons_end_statements_where_they_stand_for_themselves() {
    for (text, expected) in [
        ("", &[][..]),
        (" \n ; ;; -- nothing\n /* ; */ ;", &[]),
        ("SELECT 1", &["SELECT 1"]),
        ("SELECT 1; SELECT 2;\n", &["SELECT 1", "SELECT 2"]),
        ("SELECT ';'; SELECT 'it''s;'';'", &["SELECT ';'", "SELECT 'it''s;'';'"]),
        ("SELECT \"a;\"\"b\", `c;d`;", &["SELECT \"a;\"\"b\", `c;d`"]),
        ("SELECT 1 -- one; two\n, 2;", &["SELECT 1 -- one; two\n, 2"]),
        ("SELECT 1 /* a; /* b; */ c; */ , 2; 3", &["SELECT 1 /* a; /* b; */ c; */ , 2", "3"]),
        ("SELECT 6 /2*3; SELECT 1 - -1; SELECT 5--;\n;", &["SELECT 6 /2*3", "SELECT 1 - -1", "SELECT 5--;"]),
        ("/*/ ; */ SELECT 1", &["/*/ ; */ SELECT 1"]),
        ("SELECT $$a;'b$$; SELECT $x$ ;$$; $y$ $x$;", &["SELECT $$a;'b$$", "SELECT $x$ ;$$; $y$ $x$"]),
        ("SELECT a$b$; SELECT $1; SELECT $1$;", &["SELECT a$b$", "SELECT $1", "SELECT $1$"]),
        ("SELECT E'a\\';b'; SELECT 'a\\'; SELECT 2", &["SELECT E'a\\';b'", "SELECT 'a\\'", "SELECT 2"]),
        ("SELECT e'\\\\'; SELECT E'a''\\';'", &["SELECT e'\\\\'", "SELECT E'a''\\';'"]),
    ] {
        assert_eq!(split(text), expected, "{text}");
    }
}

#[test]
fn commands_are_lines_where_a_statement_could_begin() {
    assert_eq!(
        split("\\d t;\nSELECT 1; \\timing on\n-- why\n\\q"),
        ["\\d t;", "SELECT 1", "\\timing on", "\\q"]
    );
    assert_eq!(split("SELECT '\n\\q\n'"), ["SELECT '\n\\q\n'"]);
    assert_eq!(split("SELECT 1\n\\q"), ["SELECT 1\n\\q"]);
}

#[test]
fn what_has_no_end_is_told_with_its_line() {
    for (text, said) in [
        ("SELECT 1;\nSELECT 'abc", "the string that begins in line 2 has no end"),
        ("\"abc", "the quoted name that begins in line 1"),
        ("\n\n/* abc /* */", "the comment that begins in line 3"),
        ("SELECT $a$ abc $b$", "the dollar quote that begins in line 1"),
    ] {
        let mut splitter = Splitter::default();
        splitter.feed(text);
        assert!(!splitter.is_complete() && !splitter.is_in_the_open());
        let error = splitter.finish().unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn a_line_is_complete_when_nothing_is_pending() {
    for (text, complete) in [
        ("", true),
        ("\n", true),
        ("SELECT 1", false),
        ("SELECT 1;", true),
        ("SELECT 1; SELECT", false),
        ("SELECT 1; -- done", true),
        ("/* not yet", false),
        ("\\d t", true),
        ("SELECT '", false),
        ("$", false),
        ("-", false),
    ] {
        let mut splitter = Splitter::default();
        splitter.feed(text);
        assert_eq!(splitter.is_complete(), complete, "{text}");
    }
}

/// Something that stands for itself in a statement, whatever is in it.
fn part() -> impl Strategy<Value = String> {
    let inside = "[a-z;/*$'\"`\\\\ \n-]{0,8}";
    prop_oneof![
        "[a-z_][a-z0-9_]{0,5}",
        "[0-9]{1,3}",
        Just("(".to_owned()),
        Just("+".to_owned()),
        inside.prop_map(|text| format!("'{}'", text.replace('\'', "''"))),
        inside.prop_map(|text| format!("\"{}\"", text.replace('"', "\"\""))),
        inside.prop_map(|text| format!("`{}`", text.replace('`', "``"))),
        inside.prop_map(|text| format!("--{}\n", text.replace('\n', " "))),
        inside.prop_map(|text| format!("/*{}*/", text.replace(['/', '*'], " "))),
        inside.prop_map(|text| format!("/* a /*{}*/ b */", text.replace(['/', '*'], " "))),
        inside.prop_map(|text| format!("$q$ {} $q$", text.replace('$', " "))),
        inside.prop_map(|text| format!("$${} $$", text.replace('$', " "))),
    ]
}

/// A statement that begins with a word, so that it is one.
fn whole() -> impl Strategy<Value = String> {
    prop::collection::vec(part(), 0..8)
        .prop_map(|parts| format!("select {}", parts.join(" ")).trim().to_owned())
}

proptest! {
    #[test]
    fn statements_come_out_as_they_went_in_however_they_are_cut(
        statements in prop::collection::vec(whole(), 0..5),
        cuts in prop::collection::vec(1_usize..7, 1..9),
    ) {
        // A comment to the end of a line must not take the semicolon with it.
        let text: String = statements.iter().map(|statement| format!("{statement}\n;")).collect();
        let mut splitter = Splitter::default();
        let (mut pieces, mut rest, mut cuts) = (Vec::new(), text.as_str(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (head, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            pieces.extend(splitter.feed(head));
            rest = tail;
        }
        prop_assert!(splitter.is_complete());
        prop_assert_eq!(splitter.finish().unwrap(), None);
        prop_assert_eq!(shown(pieces), statements);
    }

    #[test]
    fn whatever_is_fed_nothing_panics_and_nothing_is_lost(text in "\\PC{0,40}") {
        let mut splitter = Splitter::default();
        let pieces = splitter.feed(&text);
        let again: Vec<Piece> = {
            let mut splitter = Splitter::default();
            text.chars().flat_map(|letter| splitter.feed(letter.encode_utf8(&mut [0; 4]))).collect()
        };
        prop_assert_eq!(&pieces, &again);
        if let Ok(rest) = splitter.finish() {
            let is_content = |text: &String| !text.trim().is_empty();
            let all = shown(pieces.into_iter().chain(rest).collect());
            prop_assert!(all.iter().all(is_content) || all.iter().any(|one| one.starts_with('\\')));
        }
    }
}
