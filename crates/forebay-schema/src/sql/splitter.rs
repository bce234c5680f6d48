//! Splits a file into statements.

use super::lexer::{Lexer, Token, TokenKind, Unfinished};
use super::statement::Statement;

/// Why the rest of a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// The statements of a text, and what stands in the way of reading the rest of it.
pub(crate) fn split(sql: &str) -> (Vec<Statement>, Option<Problem>) {
    let mut splitter = Splitter { sql, lexer: Lexer::new(sql), tokens: Vec::new(), statements: Vec::new() };
    let problem = splitter.run().err().map(|Unfinished { what, at }| Problem {
        line: sql[..at].matches('\n').count() + 1,
        message: format!("{what} that begins here has no end"),
    });
    (splitter.statements, problem)
}

struct Splitter<'a> {
    sql: &'a str,
    lexer: Lexer<'a>,
    /// Of the statement that is being read.
    tokens: Vec<Token>,
    statements: Vec<Statement>,
}

impl Splitter<'_> {
    fn run(&mut self) -> Result<(), Unfinished> {
        // Inside of parentheses and of a function's body, as psql counts them, a semicolon does not end a statement. These
        // are where they begin.
        let (mut parentheses, mut blocks) = (Vec::new(), Vec::new());
        while let Some(token) = self.lexer.next()? {
            let text = &self.sql[token.range.clone()];
            match text {
                ";" if parentheses.is_empty() && blocks.is_empty() => {
                    self.end();
                    continue;
                }
                "(" => parentheses.push(token.range.start),
                ")" => drop(parentheses.pop()),
                "\\" if self.tokens.is_empty() => {
                    self.psql_command(&token);
                    continue;
                }
                _ if token.kind == TokenKind::Word && parentheses.is_empty() && self.is_routine() => {
                    let is = |word: &str| text.eq_ignore_ascii_case(word);
                    if is("BEGIN") || is("CASE") && !blocks.is_empty() {
                        blocks.push(token.range.start);
                    } else if is("END") {
                        blocks.pop();
                    }
                }
                _ => {}
            }
            self.tokens.push(token);
        }
        if let Some(at) = parentheses.first() {
            return Err(Unfinished { what: "the parenthesis", at: *at });
        }
        if let Some(at) = blocks.first() {
            return Err(Unfinished { what: "the body", at: *at });
        }
        self.end();
        Ok(())
    }

    /// Whether the statement creates a function or a procedure, whose body may be `BEGIN ATOMIC ...; END`.
    fn is_routine(&self) -> bool {
        let word = |at: usize| self.tokens.get(at).map_or("", |token| &self.sql[token.range.clone()]);
        let noun = if word(1).eq_ignore_ascii_case("OR") { word(3) } else { word(1) };
        word(0).eq_ignore_ascii_case("CREATE")
            && ["FUNCTION", "PROCEDURE"].iter().any(|routine| noun.eq_ignore_ascii_case(routine))
    }

    fn end(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        let statement = Statement::new(self.sql, &std::mem::take(&mut self.tokens));
        let words = statement.words();
        let reads_data = statement.begins(&["COPY"])
            && words.windows(2).any(|pair| pair[0].depth == 0 && pair[0].is("FROM") && pair[1].is("STDIN"));
        self.statements.push(statement);
        if reads_data {
            self.skip_data();
        }
    }

    /// A command of psql ends with its line.
    fn psql_command(&mut self, backslash: &Token) {
        let start = backslash.range.start;
        let end = self.sql[start..].find('\n').map_or(self.sql.len(), |length| start + length);
        let range = start..start + self.sql[start..end].trim_end().len();
        // The rest of the line is not SQL.
        let rest = Token { kind: TokenKind::Text, range: start + 1..range.end };
        let tokens = [backslash.clone(), rest];
        let tokens = if range.len() > 1 { &tokens[..] } else { &tokens[..1] };
        self.statements.push(Statement::new(self.sql, tokens));
        self.lexer.skip_to(end);
    }

    /// The rows after `COPY ... FROM STDIN;`, up to a line with `\.`, as pg_dump writes them.
    fn skip_data(&mut self) {
        let end = self.lexer.position();
        let rest = &self.sql[end..];
        let mut at = 0;
        for line in rest.split_inclusive('\n') {
            at += line.len();
            if line.trim_end() == "\\." {
                self.lexer.skip_to(end + at);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(sql: &str) -> Vec<String> {
        split(sql).0.iter().map(|statement| statement.text().to_owned()).collect()
    }

    #[test]
    fn semicolons_inside_things_do_not_split() {
        assert_eq!(texts("SELECT 1; SELECT 2;"), ["SELECT 1", "SELECT 2"]);
        for one in [
            "SELECT ';', \";\", E'\\';', 'it''s;'",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS $$ SELECT 1; SELECT 2; $$",
            "SELECT /* ; /* ; */ ; */ 1",
            "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)",
            "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END",
        ] {
            assert_eq!(texts(&format!("-- x\n{one} ;\n /* y */")), [one]);
        }
        assert_eq!(texts(" -- nothing\n ; ; "), [""; 0]);
        assert_eq!(texts("BEGIN; SELECT 1; END; SELECT 2"), ["BEGIN", "SELECT 1", "END", "SELECT 2"]);
    }

    #[test]
    fn commands_of_psql_and_rows_are_not_sql() {
        let dump = "\\restrict it's\nSELECT 1;\nCOPY t (a) FROM stdin;\nit's; \\N\n\\.\n\nSELECT 2;\n";
        assert_eq!(texts(dump), ["\\restrict it's", "SELECT 1", "COPY t (a) FROM stdin", "SELECT 2"]);
    }

    #[test]
    fn what_has_no_end_is_found_in_its_line() {
        let (statements, problem) = split("SELECT 1;\nSELECT 'a\n;");
        assert_eq!(statements.len(), 1);
        assert_eq!(
            problem.map(|problem| (problem.line, problem.message)),
            Some((2, "the string that begins here has no end".to_owned()))
        );
        for (sql, line, what) in [
            ("CREATE TABLE t (\n a numeric(1, 2);\nSELECT 1;", 1, "the parenthesis"),
            ("SELECT 1;\nSELECT (1;\nSELECT 2;", 2, "the parenthesis"),
            ("CREATE FUNCTION f() RETURNS int\nBEGIN ATOMIC SELECT 1;\nSELECT 2;", 2, "the body"),
        ] {
            let problem = split(sql).1.unwrap();
            assert_eq!(
                (problem.line, problem.message),
                (line, format!("{what} that begins here has no end"))
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_every_text_is_in_the_file(sql in "[a-zBEGINCASECREATEFUNCTION'\"$;*/\\-\\\\ é\n()]{0,60}") {
            for statement in split(&sql).0 {
                prop_assert!(sql.contains(statement.text()));
            }
        }
    }
}
