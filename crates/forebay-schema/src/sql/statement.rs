//! One statement of a file.

use std::collections::BTreeSet;
use std::ops::Range;

use super::lexer::{Token, TokenKind};

/// PostgreSQL truncates longer names.
const LONGEST_NAME: usize = 63;

/// What a statement does, as far as transactions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin,
    Commit,
    Rollback,
    /// It changes the schema. Aurora DSQL allows one in a transaction, and nothing that changes rows beside it.
    Ddl,
    /// It changes rows, or it may: a query can call a function that does.
    Dml,
    /// It changes a setting of the session.
    Set,
    /// It changes nothing that can be undone, such as ANALYZE: it may run twice.
    Repeatable,
    /// A command for psql.
    Psql,
    Other,
}

/// A token with the text that rules compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    kind: TokenKind,
    /// A keyword in upper case; `"` for a quoted name, `'` for a string; otherwise the token itself.
    key: String,
    /// Where it is in the text of the statement.
    pub(crate) range: Range<usize>,
    /// How many parentheses are open. A parenthesis is at the depth around it.
    pub(crate) depth: usize,
}

impl Word {
    fn new(source: &str, token: &Token, from: usize, depth: usize) -> Self {
        let text = &source[token.range.clone()];
        let key = match token.kind {
            TokenKind::Word => text.to_ascii_uppercase(),
            TokenKind::QuotedName => "\"".to_owned(),
            TokenKind::Text => "'".to_owned(),
            TokenKind::Number | TokenKind::Sign => text.to_owned(),
        };
        Self { kind: token.kind, key, range: token.range.start - from..token.range.end - from, depth }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn is(&self, key: &str) -> bool {
        self.key == key
    }

    pub(crate) fn is_name(&self) -> bool {
        matches!(self.kind, TokenKind::Word | TokenKind::QuotedName)
    }
}

/// A statement without its semicolon, and without the comments around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    text: String,
    /// Its first line, counted from 1.
    line: usize,
    words: Vec<Word>,
    kind: Kind,
}

impl Statement {
    /// From tokens of `source`, of which there is at least one.
    pub(super) fn new(source: &str, tokens: &[Token]) -> Self {
        let from = tokens.first().map_or(0, |token| token.range.start);
        let to = tokens.last().map_or(from, |token| token.range.end);
        let mut depth = 0_usize;
        let mut words = Vec::with_capacity(tokens.len());
        for token in tokens {
            let word = Word::new(source, token, from, depth);
            match word.key() {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                _ => {}
            }
            words.push(if word.is(")") { Word { depth, ..word } } else { word });
        }
        let kind = kind(&words);
        let line = source[..from].matches('\n').count() + 1;
        Self { text: source[from..to].to_owned(), line, words, kind }
    }

    /// A statement that was written by this crate, or that is stored: it has been split before.
    pub(crate) fn parse(text: &str) -> Self {
        match super::split(text).0.into_iter().next() {
            Some(statement) => statement,
            None => Self { text: text.to_owned(), line: 1, words: Vec::new(), kind: Kind::Other },
        }
    }

    /// The same, in another line.
    pub(crate) fn at_line(self, line: usize) -> Self {
        Self { line, ..self }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// The line of one of its words.
    pub(crate) fn line_of(&self, word: &Word) -> usize {
        self.line + self.text[..word.range.start].matches('\n').count()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn words(&self) -> &[Word] {
        &self.words
    }

    /// The word at a position, or nothing if there are fewer.
    pub(crate) fn key(&self, at: usize) -> &str {
        self.words.get(at).map_or("", Word::key)
    }

    /// Whether it begins with these words.
    pub(crate) fn begins(&self, keys: &[&str]) -> bool {
        self.words.len() >= keys.len() && self.words.iter().zip(keys).all(|(word, key)| word.is(key))
    }

    /// A name as the catalog has it.
    pub(crate) fn name(&self, word: &Word) -> Option<String> {
        let text = &self.text[word.range.clone()];
        let mut name = match word.kind {
            // The server leaves other letters as they are.
            TokenKind::Word => text.to_ascii_lowercase(),
            TokenKind::QuotedName => {
                let inner = text.trim_start_matches(['u', 'U', '&']);
                inner[1..inner.len().max(2) - 1].replace("\"\"", "\"")
            }
            _ => return None,
        };
        let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
        name.truncate(end.unwrap_or(0));
        Some(name)
    }

    /// All names in it, and its keywords, which look the same.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.words.iter().filter_map(|word| self.name(word)).collect()
    }

    /// Its words without the spaces and comments between them.
    pub(crate) fn canonical(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|word| &self.text[word.range.clone()]).collect();
        words.join(" ")
    }

    /// Its first line, shortened, for people.
    pub(crate) fn summary(&self) -> String {
        const LONGEST: usize = 72;
        let line = self.text.lines().next().unwrap_or_default().trim_end();
        let is_whole = line.len() == self.text.len();
        match line.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{} ...", line[..end].trim_end()),
            None if is_whole => line.to_owned(),
            None => format!("{line} ..."),
        }
    }

    /// Whether the server answers with a job that goes on in the background.
    pub(crate) fn submits_job(&self) -> bool {
        [
            &["CREATE", "INDEX", "ASYNC"][..],
            &["CREATE", "UNIQUE", "INDEX", "ASYNC"],
            &["ALTER", "TABLE", "ASYNC"],
        ]
        .iter()
        .any(|keys| self.begins(keys))
    }
}

fn kind(words: &[Word]) -> Kind {
    let key = |at: usize| words.get(at).map_or("", Word::key);
    match key(0) {
        "\\" => Kind::Psql,
        "BEGIN" => Kind::Begin,
        "START" if key(1) == "TRANSACTION" => Kind::Begin,
        "COMMIT" | "END" if key(1) != "PREPARED" => Kind::Commit,
        "ABORT" => Kind::Rollback,
        "ROLLBACK" if !words.iter().any(|word| word.is("TO") || word.is("PREPARED")) => Kind::Rollback,
        "CREATE" | "ALTER" | "DROP" | "GRANT" | "REVOKE" | "COMMENT" | "AWS" => Kind::Ddl,
        "SET" if key(1) == "CONSTRAINTS" => Kind::Dml,
        "SET" | "RESET" => Kind::Set,
        // It lasts longer than its transaction.
        "SELECT" if key(1) == "SET_CONFIG" || key(1) == "PG_CATALOG" && key(3) == "SET_CONFIG" => Kind::Set,
        "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "COPY" | "CALL" | "SELECT" | "WITH" | "VALUES"
        | "TABLE" | "(" => Kind::Dml,
        // It runs what it explains.
        "EXPLAIN" if words.iter().any(|word| word.is("ANALYZE") || word.is("ANALYSE")) => Kind::Dml,
        "ANALYZE" | "ANALYSE" | "SHOW" | "EXPLAIN" => Kind::Repeatable,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (sql, kind) in [
            ("begin", Kind::Begin),
            ("start transaction read write", Kind::Begin),
            ("end", Kind::Commit),
            ("rollback", Kind::Rollback),
            ("rollback to savepoint x", Kind::Other),
            ("/* x */ create table t (a int)", Kind::Ddl),
            ("comment on table t is 'x'", Kind::Ddl),
            ("(select 1)", Kind::Dml),
            ("set search_path = a", Kind::Set),
            ("select pg_catalog.set_config('search_path', '', false)", Kind::Set),
            ("truncate t", Kind::Other),
            ("analyze t", Kind::Repeatable),
            ("explain (analyze) insert into t values (1)", Kind::Dml),
            ("explain delete from t", Kind::Repeatable),
            ("\\connect x", Kind::Psql),
        ] {
            assert_eq!(Statement::parse(sql).kind(), kind, "{sql}");
        }
    }

    #[test]
    fn names_are_as_the_catalog_has_them() {
        let statement = Statement::parse("CREATE INDEX Abc ON s.\"D\"\"e\" (F) -- g");
        let names: Vec<String> = statement.names().into_iter().collect();
        assert_eq!(names, ["D\"e", "abc", "create", "f", "index", "on", "s"]);
        assert_eq!(Statement::parse("ÄRGER_Über").names().first().map(String::as_str), Some("Ärger_Über"));
        let long = "é".repeat(40);
        assert_eq!(Statement::parse(&long).names().first().map(String::len), Some(62));
    }

    #[test]
    fn spaces_and_comments_do_not_change_the_canonical_text() {
        let one = Statement::parse("CREATE  TABLE t -- x\n (a text DEFAULT ' /* y */')");
        let two = Statement::parse("CREATE TABLE t(a text /* z */ DEFAULT ' /* y */')");
        assert_eq!(one.canonical(), two.canonical());
        assert_ne!(one.canonical(), Statement::parse("CREATE TABLE t(a text DEFAULT '')").canonical());
    }

    #[test]
    fn words_know_their_depth_and_line() {
        let statement = Statement::parse("\nCREATE TABLE t (\n a numeric(1, 2)\n)");
        let depths: Vec<(&str, usize)> =
            statement.words().iter().map(|word| (word.key(), word.depth)).collect();
        assert_eq!(depths[3..7], [("(", 0), ("A", 1), ("NUMERIC", 1), ("(", 1)]);
        assert_eq!(depths.last(), Some(&(")", 0)));
        assert_eq!(statement.line(), 2);
        assert_eq!(statement.line_of(&statement.words()[4]), 3);
    }

    #[test]
    fn a_summary_is_one_short_line() {
        assert_eq!(Statement::parse("SELECT 1").summary(), "SELECT 1");
        assert_eq!(Statement::parse("CREATE TABLE t (\n a int)").summary(), "CREATE TABLE t ( ...");
        assert_eq!(Statement::parse(&format!("SELECT '{}'", "x".repeat(90))).summary().len(), 76);
    }
}
