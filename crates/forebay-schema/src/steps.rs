//! The transactions that a file becomes.

use crate::files::MigrationFile;
use crate::fix;
use crate::rules;
use crate::sql::{Kind, Statement};

/// What one transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One change of the schema, and nothing else.
    Ddl(Statement),
    /// Changes of rows. What is recorded about them is committed together with them.
    Dml(Vec<Statement>),
    /// It may run twice, and may not be in a transaction with others.
    Repeatable(Statement),
}

/// One transaction, and its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The number of its first statement, from 0.
    pub(crate) number: usize,
    /// The number after its last statement.
    pub(crate) next: usize,
    /// Settings of the file that it runs with.
    pub(crate) settings: Vec<String>,
    pub(crate) work: Work,
}

impl Step {
    /// The statement to show for it.
    pub(crate) fn head(&self) -> Option<&Statement> {
        match &self.work {
            Work::Ddl(statement) | Work::Repeatable(statement) => Some(statement),
            Work::Dml(statements) => statements.first(),
        }
    }

    pub(crate) fn statements(&self) -> &[Statement] {
        match &self.work {
            Work::Ddl(statement) | Work::Repeatable(statement) => std::slice::from_ref(statement),
            Work::Dml(statements) => statements,
        }
    }
}

/// The transactions of a file from its statement number `done` on. With `fix`, statements are rewritten as Aurora DSQL needs them.
pub(crate) fn steps(file: &MigrationFile, done: usize, fix: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    // Each with whether it is local to the transaction that is being read.
    let mut settings: Vec<(String, bool)> = Vec::new();
    let texts = |settings: &[(String, bool)]| settings.iter().map(|(text, _)| text.clone()).collect();
    let mut at = 0;
    let statements = file.statements();
    while at < statements.len() {
        let group = if statements[at].kind() == Kind::Begin { group(statements, at) } else { None };
        let (next, inner) = match group {
            Some(end) => (end + 1, &statements[at + 1..end]),
            None => (at + 1, &statements[at..=at]),
        };
        let is_one = group.is_some() && is_one_transaction(inner);
        let mut rows: Vec<(usize, Statement)> = Vec::new();
        for (offset, statement) in inner.iter().enumerate() {
            let number = at + usize::from(group.is_some()) + offset;
            // The last one of a group includes the COMMIT.
            let after = if offset + 1 == inner.len() { next } else { number + 1 };
            let work = match statement.kind() {
                // Nothing else is set: every transaction begins with what the server has.
                Kind::Set if statement.begins(&["RESET", "ALL"]) => {
                    settings.clear();
                    continue;
                }
                Kind::Set if fix && rules::can_be_left_out(statement) => continue,
                Kind::Set => {
                    let is_local = group.is_some() && statement.key(1) == "LOCAL";
                    settings.push((statement.text().to_owned(), is_local));
                    continue;
                }
                _ if number < done => continue,
                Kind::Begin | Kind::Commit | Kind::Rollback | Kind::Psql => continue,
                Kind::Dml | Kind::Repeatable if is_one => {
                    rows.push((number, statement.clone()));
                    continue;
                }
                Kind::Dml => Work::Dml(vec![statement.clone()]),
                Kind::Repeatable => Work::Repeatable(statement.clone()),
                Kind::Ddl | Kind::Other => Work::Ddl(match fix::rewrite(statement) {
                    Some(fixed) if fix => fixed,
                    _ => statement.clone(),
                }),
            };
            steps.push(Step { number, next: after, settings: texts(&settings), work });
        }
        if let Some((number, _)) = rows.first() {
            let number = *number;
            let work = Work::Dml(rows.into_iter().map(|(_, statement)| statement).collect());
            steps.push(Step { number, next, settings: texts(&settings), work });
        }
        settings.retain(|(_, is_local)| !is_local);
        at = next;
    }
    steps
}

/// The place of the COMMIT that belongs to the BEGIN at `begin`.
pub(crate) fn group(statements: &[Statement], begin: usize) -> Option<usize> {
    let rest = &statements[begin + 1..];
    let end =
        rest.iter().position(|one| matches!(one.kind(), Kind::Begin | Kind::Commit | Kind::Rollback))?;
    (rest[end].kind() == Kind::Commit).then_some(begin + 1 + end)
}

/// Whether Aurora DSQL could run all of it in one transaction.
pub(crate) fn is_one_transaction(statements: &[Statement]) -> bool {
    let count = |kind: Kind| statements.iter().filter(|statement| statement.kind() == kind).count();
    let ddl = count(Kind::Ddl) + count(Kind::Other);
    ddl == 0 || ddl == 1 && count(Kind::Dml) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Migrations;

    fn shown(text: &str, done: usize) -> Vec<String> {
        let migrations = Migrations::embedded(&[("1.sql", text)]).unwrap();
        let show = |step: Step| {
            let texts: Vec<&str> = step.statements().iter().map(Statement::text).collect();
            format!("{}-{} [{}] {}", step.number, step.next, step.settings.join(","), texts.join("; "))
        };
        steps(&migrations.files()[0], done, true).into_iter().map(show).collect()
    }

    #[test]
    fn each_statement_is_a_transaction_unless_the_file_groups_rows() {
        let file =
            "SET search_path = s; CREATE TABLE a (i int); INSERT INTO a VALUES (1); INSERT INTO a VALUES (2);
                    BEGIN; INSERT INTO a VALUES (3); INSERT INTO a VALUES (4); COMMIT; ANALYZE a;";
        let expected = [
            "1-2 [SET search_path = s] CREATE TABLE a (i int)",
            "2-3 [SET search_path = s] INSERT INTO a VALUES (1)",
            "3-4 [SET search_path = s] INSERT INTO a VALUES (2)",
            "5-8 [SET search_path = s] INSERT INTO a VALUES (3); INSERT INTO a VALUES (4)",
            "8-9 [SET search_path = s] ANALYZE a",
        ];
        assert_eq!(shown(file, 0), expected);
        assert_eq!(shown(file, 2), expected[1..]);
        assert_eq!(shown(file, 4), expected[3..]);
        assert_eq!(shown(file, 9), [""; 0]);
    }

    #[test]
    fn settings_hold_for_as_long_as_the_file_says() {
        let file = "SET search_path = s; BEGIN; SET LOCAL search_path = t; SET timezone = 'UTC'; DELETE FROM a; COMMIT;
                    DELETE FROM b; RESET ALL; DELETE FROM c;";
        assert_eq!(
            shown(file, 0),
            [
                "4-6 [SET search_path = s,SET LOCAL search_path = t,SET timezone = 'UTC'] DELETE FROM a",
                "6-7 [SET search_path = s,SET timezone = 'UTC'] DELETE FROM b",
                "8-9 [] DELETE FROM c",
            ]
        );
        // Outside of a transaction, it is for the rest of the file, which other tools run as one.
        assert_eq!(
            shown("SET LOCAL search_path = t; SELECT 1", 0),
            ["1-2 [SET LOCAL search_path = t] SELECT 1"]
        );
    }

    #[test]
    fn a_group_with_several_changes_of_the_schema_is_taken_apart() {
        let file = "BEGIN; CREATE TABLE a (i int); CREATE INDEX ON a (i); INSERT INTO a VALUES (1); COMMIT; SELECT 1";
        let expected = [
            "1-2 [] CREATE TABLE a (i int)",
            "2-3 [] CREATE INDEX ASYNC ON a (i)",
            "3-5 [] INSERT INTO a VALUES (1)",
            "5-6 [] SELECT 1",
        ];
        assert_eq!(shown(file, 0), expected);
        assert_eq!(shown(file, 3), expected[2..]);
        assert_eq!(shown("BEGIN; CREATE TABLE a (i int); COMMIT", 0), ["1-3 [] CREATE TABLE a (i int)"]);
    }
}
