//! Splits queries into statements and classifies them, without parsing SQL.

mod tokens;

use std::fmt;
use std::sync::Arc;

pub(crate) use tokens::{has, names, requalify, spans, tokens};

/// The verbs of queries that change rows.
const MODIFYING: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "MERGE"];

/// No rule looks at more leading words.
const WORDS: usize = 6;

/// One statement of a query.
#[derive(Clone, PartialEq, Eq)]
pub struct Statement {
    text: Arc<str>,
    kind: Kind,
    words: Vec<String>,
}

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It has no text.
    Empty,
    /// It begins a transaction.
    Begin,
    /// It commits a transaction.
    Commit,
    /// It rolls a transaction back.
    Rollback,
    /// It changes a setting of the session.
    Set,
    /// It shows a setting.
    Show,
    /// It reads.
    Select,
    /// It changes rows.
    Dml,
    /// It changes the schema or privileges.
    Ddl,
    /// Anything else.
    Other,
}

impl Statement {
    /// Splits a query. There is at least one statement, which may be empty.
    #[must_use]
    pub fn split(query: &str) -> Vec<Self> {
        let mut statements = Vec::new();
        let mut rest = query;
        loop {
            let (statement, end) = scan(rest);
            let more = end < rest.len();
            if !statement.text.is_empty() || (!more && statements.is_empty()) {
                statements.push(statement);
            }
            if !more {
                return statements;
            }
            rest = &rest[end + 1..];
        }
    }

    /// Its text, without surrounding spaces and semicolon.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether the text contains these letters, ignoring case. This is a cheap check before tokenizing.
    pub(crate) fn contains_ignore_case(&self, letters: &str) -> bool {
        self.text.as_bytes().windows(letters.len()).any(|at| at.eq_ignore_ascii_case(letters.as_bytes()))
    }

    /// What it does.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it begins with these words, in upper case.
    #[must_use]
    pub fn begins(&self, words: &[&str]) -> bool {
        self.words.len() >= words.len() && self.words.iter().zip(words).all(|(own, word)| own == word)
    }

    /// Whether this word, in upper case, is among the first few.
    #[must_use]
    pub fn mentions(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word)
    }

    /// The word at `index`, in upper case.
    #[must_use]
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// Whether a query in it changes rows: in WITH, or of a COPY.
    pub(crate) fn modifies(&self) -> bool {
        ["WITH", "COPY"].contains(&self.word(0))
            && MODIFYING.iter().any(|verb| self.contains_ignore_case(verb))
            && tokens(&self.text).windows(3).any(|tokens| {
                let [before, bracket, verb] = tokens else { return false };
                let is_query = ["AS", "MATERIALIZED", "COPY"].contains(&before.as_str());
                is_query && bracket == "(" && MODIFYING.contains(&verb.as_str())
            })
    }

    /// Whether it is a COPY FROM.
    pub(crate) fn copies_in(&self) -> bool {
        self.kind == Kind::Dml && self.word(0) == "COPY"
    }

    /// Whether it locks the rows that it reads.
    pub(crate) fn locks(&self) -> bool {
        const LOCKS: [&[&str]; 4] = [
            &["FOR", "UPDATE"],
            &["FOR", "NO", "KEY", "UPDATE"],
            &["FOR", "SHARE"],
            &["FOR", "KEY", "SHARE"],
        ];
        self.contains_ignore_case("for") && {
            let tokens = tokens(&self.text);
            LOCKS.iter().any(|lock| has(&tokens, lock))
        }
    }

    /// Whether it calls a function that changes a sequence.
    pub(crate) fn draws(&self) -> bool {
        const FUNCTIONS: [&str; 2] = ["NEXTVAL", "SETVAL"];
        FUNCTIONS.iter().any(|name| self.contains_ignore_case(name))
            && tokens(&self.text).windows(2).any(|at| FUNCTIONS.contains(&at[0].as_str()) && at[1] == "(")
    }

    /// Whether a BEGIN begins a read-only transaction, or a SET makes the next ones read-only; none if it does not say.
    pub(crate) fn is_read_only(&self) -> Option<bool> {
        let tokens = tokens(&self.text);
        let mode = tokens.windows(2).rfind(|at| at[0] == "READ" && (at[1] == "ONLY" || at[1] == "WRITE"));
        mode.map(|mode| mode[1] == "ONLY")
    }

    /// The command tag for the client.
    #[must_use]
    pub fn tag(&self, rows: u64) -> String {
        let verb = self.word(0);
        match self.kind {
            Kind::Select | Kind::Dml if verb == "COPY" => format!("COPY {rows}"),
            Kind::Select => format!("SELECT {rows}"),
            Kind::Dml if verb == "INSERT" || self.mentions("INSERT") => format!("INSERT 0 {rows}"),
            Kind::Dml => {
                let verb = ["UPDATE", "DELETE", "MERGE"].into_iter().find(|verb| self.mentions(verb));
                format!("{} {rows}", verb.unwrap_or("UPDATE"))
            }
            Kind::Begin if verb == "START" => "START TRANSACTION".to_owned(),
            Kind::Begin => "BEGIN".to_owned(),
            Kind::Commit => "COMMIT".to_owned(),
            Kind::Rollback => "ROLLBACK".to_owned(),
            Kind::Other if verb == "ANALYSE" => "ANALYZE".to_owned(),
            Kind::Other if self.begins(&["DEALLOCATE", "ALL"]) => "DEALLOCATE ALL".to_owned(),
            Kind::Other if self.begins(&["SET", "CONSTRAINTS"]) => "SET CONSTRAINTS".to_owned(),
            Kind::Set if verb == "RESET" => "RESET".to_owned(),
            Kind::Ddl if verb == "AWS" => self.words[..self.words.len().min(3)].join(" "),
            Kind::Ddl if matches!(verb, "CREATE" | "DROP" | "ALTER") => {
                let noise = ["OR", "REPLACE", "UNIQUE", "TEMP", "TEMPORARY", "RECURSIVE", "UNLOGGED"];
                let mut nouns = self.words[1..].iter().filter(|word| !noise.contains(&word.as_str()));
                match nouns.next().map_or("", String::as_str) {
                    "DEFAULT" => format!("{verb} DEFAULT PRIVILEGES"),
                    "USER" | "GROUP" if !self.mentions("MAPPING") => format!("{verb} ROLE"),
                    noun => format!("{verb} {noun}"),
                }
            }
            _ => verb.to_owned(),
        }
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.kind, self.text)
    }
}

/// The first statement of `sql`, and where it ends: at a semicolon or at the end.
fn scan(sql: &str) -> (Statement, usize) {
    let bytes = sql.as_bytes();
    let (mut at, mut depth, mut begin) = (0_usize, 0_usize, None);
    // How many BEGIN and CASE are open in the body of a function.
    let mut blocks = 0_usize;
    let mut words: Vec<String> = Vec::new();
    let mut verb = None;
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        match byte {
            b';' if blocks == 0 => break,
            b'-' if next == Some(b'-') => {
                at = line_comment_end(bytes, at);
                continue;
            }
            b'/' if next == Some(b'*') => {
                at = comment_end(bytes, at);
                continue;
            }
            _ if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            _ => {}
        }
        begin = begin.or(Some(at));
        match byte {
            b'\'' => at = quoted_end(bytes, at, b'\'', false),
            b'"' => at = quoted_end(bytes, at, b'"', false),
            b'$' => at = dollar_end(sql, at),
            b'(' => (depth, at) = (depth + 1, at + 1),
            b')' => (depth, at) = (depth.saturating_sub(1), at + 1),
            _ if is_word(byte) && !byte.is_ascii_digit() => {
                let end = word_end(bytes, at);
                let word = &sql[at..end];
                if bytes.get(end) == Some(&b'\'') && word.eq_ignore_ascii_case("e") {
                    at = quoted_end(bytes, end, b'\'', true);
                    continue;
                }
                if depth == 0 && is_routine(&words) {
                    let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
                    if is("BEGIN") || is("CASE") && blocks > 0 {
                        blocks += 1;
                    } else if is("END") {
                        blocks = blocks.saturating_sub(1);
                    }
                }
                if depth == 0 {
                    let upper = (words.len() < WORDS || verb.is_none()).then(|| word.to_ascii_uppercase());
                    if let Some(upper) = upper {
                        verb = verb.or_else(|| {
                            (words.is_empty() || words[0] == "WITH").then(|| verb_kind(&upper))?
                        });
                        if words.len() < WORDS || (words[0] == "WITH" && verb_kind(&upper).is_some()) {
                            words.push(upper);
                        }
                    }
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    let end = at.min(sql.len());
    let text: Arc<str> = begin.map_or("", |begin| sql[begin..end].trim_end()).into();
    let kind = if text.is_empty() { Kind::Empty } else { kind(&words, verb) };
    (Statement { text, kind, words }, end)
}

/// Whether a statement that begins with these words creates a function or a procedure, whose body may be `BEGIN ATOMIC ...; END`.
fn is_routine(words: &[String]) -> bool {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let noun = if word(1) == "OR" { word(3) } else { word(1) };
    word(0) == "CREATE" && matches!(noun, "FUNCTION" | "PROCEDURE")
}

/// The kind of a query, which may follow WITH.
fn verb_kind(word: &str) -> Option<Kind> {
    match word {
        "SELECT" | "VALUES" | "TABLE" => Some(Kind::Select),
        "INSERT" | "UPDATE" | "DELETE" | "MERGE" => Some(Kind::Dml),
        _ => None,
    }
}

fn kind(words: &[String], verb: Option<Kind>) -> Kind {
    if let Some(kind) = verb {
        return kind;
    }
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    match word(0) {
        // A query in parentheses has no word outside of them.
        "" => Kind::Select,
        "BEGIN" => Kind::Begin,
        "START" if word(1) == "TRANSACTION" => Kind::Begin,
        "COMMIT" | "END" if word(1) != "PREPARED" => Kind::Commit,
        "ROLLBACK" if !words.iter().any(|word| word == "TO" || word == "PREPARED") => Kind::Rollback,
        "ABORT" => Kind::Rollback,
        // It changes the transaction, not a setting.
        "SET" if word(1) == "CONSTRAINTS" => Kind::Other,
        "SET" | "RESET" => Kind::Set,
        "SHOW" => Kind::Show,
        // Its query, if it has one, is in parentheses.
        "COPY"
            if words
                .iter()
                .find(|word| *word == "FROM" || *word == "TO")
                .is_some_and(|word| word == "FROM") =>
        {
            Kind::Dml
        }
        "COPY" => Kind::Select,
        "CREATE" | "ALTER" | "DROP" | "GRANT" | "REVOKE" | "COMMENT" | "AWS" => Kind::Ddl,
        _ => Kind::Other,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn word_end(bytes: &[u8], at: usize) -> usize {
    let inside = |byte: &u8| is_word(*byte) || *byte == b'$';
    at + bytes[at..].iter().position(|byte| !inside(byte)).unwrap_or(bytes.len() - at)
}

/// The end of a quoted text that begins at `at`. A doubled quote is part of the text.
fn quoted_end(bytes: &[u8], mut at: usize, quote: u8, backslashes: bool) -> usize {
    at += 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if backslashes => at += 2,
            _ if byte == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            _ if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a text between `$tag$` and `$tag$`; the next character if there is none, as in `$1`.
fn dollar_end(sql: &str, at: usize) -> usize {
    let tag_end = word_end_without_dollar(sql.as_bytes(), at + 1);
    let is_tag = sql.as_bytes().get(tag_end) == Some(&b'$')
        && !sql.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit);
    if !is_tag {
        return at + 1;
    }
    let tag = &sql[at..=tag_end];
    let body = tag_end + 1;
    sql[body..].find(tag).map_or(sql.len(), |found| body + found + tag.len())
}

fn word_end_without_dollar(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().position(|byte| !is_word(*byte)).unwrap_or(bytes.len() - at)
}

/// The end of a comment that begins with `--`. As in PostgreSQL, a carriage return ends it, too.
fn line_comment_end(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(bytes.len() - at)
}

/// The end of a comment, which may be nested.
fn comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(query: &str) -> Vec<String> {
        Statement::split(query).iter().map(|statement| statement.text().to_string()).collect()
    }

    #[test]
    fn semicolons_inside_things_do_not_split() {
        assert_eq!(texts("SELECT 1; SELECT 2;"), ["SELECT 1", "SELECT 2"]);
        let tricky = [
            "SELECT ';', \";\", E'\\';', 'it''s;'",
            "SELECT $$;$$, $a$;$$;$a$, $1",
            "SELECT 1 -- ;\n + 1",
            "SELECT /* ; /* ; */ ; */ 1",
            "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END",
        ];
        for tricky in tricky {
            assert_eq!(texts(tricky), [tricky]);
        }
        assert_eq!(texts(" -- nothing\n ; ; "), [""]);
        assert_eq!(texts("SELECT --\r1; SELECT 2"), ["SELECT --\r1", "SELECT 2"]);
        assert_eq!(texts(""), [""]);
    }

    #[test]
    fn kinds_and_tags() {
        let cases = [
            ("begin", Kind::Begin, "BEGIN"),
            ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ", Kind::Begin, "START TRANSACTION"),
            ("end", Kind::Commit, "COMMIT"),
            ("ABORT", Kind::Rollback, "ROLLBACK"),
            ("rollback to savepoint a", Kind::Other, "ROLLBACK"),
            ("/* hi */ select 1", Kind::Select, "SELECT 3"),
            ("(SELECT 1)", Kind::Select, "SELECT 3"),
            ("WITH a AS (DELETE FROM t) SELECT 1", Kind::Select, "SELECT 3"),
            ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", Kind::Dml, "INSERT 0 3"),
            ("WITH a (b, c, d, e, f, g, h) AS (SELECT 1) UPDATE t SET x = 1", Kind::Dml, "UPDATE 3"),
            ("delete from t", Kind::Dml, "DELETE 3"),
            ("CREATE UNIQUE INDEX ASYNC i ON t (a)", Kind::Ddl, "CREATE INDEX"),
            ("drop table t", Kind::Ddl, "DROP TABLE"),
            ("CREATE UNLOGGED SEQUENCE s", Kind::Ddl, "CREATE SEQUENCE"),
            ("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO r", Kind::Ddl, "ALTER DEFAULT PRIVILEGES"),
            ("CREATE USER u", Kind::Ddl, "CREATE ROLE"),
            ("SET a = 1", Kind::Set, "SET"),
            ("RESET ALL", Kind::Set, "RESET"),
            ("SHOW a", Kind::Show, "SHOW"),
            ("GRANT x TO y", Kind::Ddl, "GRANT"),
            ("AWS IAM GRANT x TO 'y'", Kind::Ddl, "AWS IAM GRANT"),
            ("ALTER TABLE ASYNC t VALIDATE CONSTRAINT c", Kind::Ddl, "ALTER TABLE"),
            ("SET CONSTRAINTS ALL DEFERRED", Kind::Other, "SET CONSTRAINTS"),
            ("truncate t", Kind::Other, "TRUNCATE"),
            ("copy t (a, b) from stdin with (format csv)", Kind::Dml, "COPY 3"),
            ("COPY \"from\".t TO STDOUT", Kind::Select, "COPY 3"),
            ("COPY (SELECT * FROM t) TO STDOUT", Kind::Select, "COPY 3"),
        ];
        for (sql, kind, tag) in cases {
            let statement = &Statement::split(sql)[0];
            assert_eq!((statement.kind(), statement.tag(3).as_str()), (kind, tag), "{sql}");
        }
    }

    #[test]
    fn the_last_mode_of_a_begin_counts() {
        for (sql, read_only) in [
            ("BEGIN", None),
            ("BEGIN READ ONLY", Some(true)),
            ("BEGIN READ ONLY, ISOLATION LEVEL REPEATABLE READ", Some(true)),
            ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY, DEFERRABLE", Some(true)),
            ("BEGIN READ  ONLY -- for a report", Some(true)),
            ("BEGIN /* READ ONLY */ READ WRITE", Some(false)),
        ] {
            assert_eq!(Statement::split(sql)[0].is_read_only(), read_only, "{sql}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_text_is_lost(sql in "[a-z'\"$;*/\\-\\\\ é\n()]{0,60}") {
            let statements = Statement::split(&sql);
            prop_assert!(!statements.is_empty());
            for statement in statements {
                prop_assert!(sql.contains(&**statement.text()));
                prop_assert!(!statement.tag(1).contains('\0'));
            }
        }
    }
}
