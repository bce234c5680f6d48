//! Checks that must read the catalog before a statement runs, because the statement changes it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Ident, LockType, Query, Select, SetExpr, TableFactor, Visit, Visitor,
};

use super::quoting::literal;
use crate::builtin::syntax;
use crate::config::Rules;
use crate::error::SqlError;
use crate::statement::{Kind, Statement, spans};

/// A query whose result, if any, is why a statement is refused: SQLSTATE and message.
pub(super) fn question(statement: &Statement, rules: Rules) -> Result<Option<String>, SqlError> {
    match statement.kind() {
        Kind::Ddl if statement.begins(&["ALTER", "TABLE"]) => Ok(drops(statement.text())),
        Kind::Select if rules == Rules::Spec => locks(statement.text()),
        _ => Ok(None),
    }
}

/// A primary key is permanent: neither its columns nor the constraint can be dropped.
fn drops(text: &str) -> Option<String> {
    let spans = spans(text);
    let word = |at: usize| spans.get(at).map_or("", |(token, _)| token.as_str());
    let name = (2..spans.len()).find(|at| !["IF", "EXISTS", "ONLY"].contains(&word(*at)))?;
    let mut end = name;
    while word(end + 1) == "." {
        end += 2;
    }
    let relation = literal(text.get(spans[name].1.start..spans.get(end)?.1.end)?);
    let mut questions = Vec::new();
    for at in (end + 1..spans.len()).filter(|at| word(*at) == "DROP") {
        // For example `ALTER COLUMN c DROP DEFAULT`.
        if word(at - 2) == "ALTER" || (word(at - 2) == "COLUMN" && word(at - 3) == "ALTER") {
            continue;
        }
        let constraint = word(at + 1) == "CONSTRAINT";
        let what = (at + 1..spans.len())
            .find(|at| !["COLUMN", "CONSTRAINT", "IF", "EXISTS"].contains(&word(*at)))
            .map(|at| literal(&text[spans[at].1.clone()]))?;
        questions.push(if constraint {
            format!(
                "SELECT '0A000', 'unsupported ALTER TABLE DROP CONSTRAINT statement' FROM pg_catalog.pg_constraint
                 WHERE contype = 'p' AND conrelid = to_regclass({relation}) AND conname = (parse_ident({what}))[1]"
            )
        } else {
            format!(
                "SELECT '0A000', format('cannot drop primary key column %s', attname)
                 FROM pg_catalog.pg_index JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
                 WHERE indisprimary AND indrelid = to_regclass({relation}) AND attname = (parse_ident({what}))[1]"
            )
        });
    }
    (!questions.is_empty()).then(|| questions.join(" UNION ALL "))
}

/// FOR UPDATE needs one table and its whole primary key.
fn locks(text: &str) -> Result<Option<String>, SqlError> {
    if !text.to_ascii_uppercase().contains("UPDATE") {
        return Ok(None);
    }
    // PostgreSQL reports the syntax error.
    let Ok(ast) = syntax::parse(text) else { return Ok(None) };
    let mut locks = Locks(Vec::new());
    let outcome = ast.visit(&mut locks);
    match outcome {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok((!locks.0.is_empty()).then(|| locks.0.join(" UNION ALL "))),
    }
}

struct Locks(Vec<String>);

impl Visitor for Locks {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        if !query.locks.iter().any(|lock| lock.lock_type == LockType::Update) {
            return ControlFlow::Continue(());
        }
        match &*query.body {
            SetExpr::Select(select) => match locked(select) {
                Some(question) => self.0.push(question),
                None => return ControlFlow::Break(several()),
            },
            _ => return ControlFlow::Break(several()),
        }
        ControlFlow::Continue(())
    }
}

fn several() -> SqlError {
    SqlError::unsupported("locking clause such as FOR UPDATE can be applied on a single table")
}

/// A query that checks the key of the only table; none if there is not exactly one table.
fn locked(select: &Select) -> Option<String> {
    let [from] = &select.from[..] else { return None };
    let TableFactor::Table { name, .. } = &from.relation else { return None };
    if !from.joins.is_empty() {
        return None;
    }
    let mut fixed = BTreeSet::new();
    select.selection.iter().for_each(|condition| equalities(condition, &mut fixed));
    let relation = literal(&name.to_string());
    let fixed: Vec<String> = fixed.iter().map(|column| literal(column)).collect();
    Some(format!(
        "SELECT '0A000', 'locking clause such as FOR UPDATE can be applied only on tables with equality predicates on the key'
         WHERE to_regclass({relation}) IS NOT NULL AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_index JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
           WHERE indisprimary AND indrelid = to_regclass({relation})
           HAVING bool_and(attname = ANY (ARRAY[{}]::name[])))",
        fixed.join(", ")
    ))
}

fn equalities(condition: &Expr, fixed: &mut BTreeSet<String>) {
    let column = |expr: &Expr| -> Option<Ident> {
        match expr {
            Expr::Identifier(name) => Some(name.clone()),
            Expr::CompoundIdentifier(names) => names.last().cloned(),
            _ => None,
        }
    };
    match condition {
        Expr::Nested(inner) => equalities(inner, fixed),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            equalities(left, fixed);
            equalities(right, fixed);
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            if let (Some(name), None) | (None, Some(name)) = (column(left), column(right)) {
                let folded = name.quote_style.is_none().then(|| name.value.to_lowercase());
                fixed.insert(folded.unwrap_or(name.value));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(sql: &str) -> Result<Option<String>, SqlError> {
        question(&Statement::split(sql)[0], Rules::Spec)
    }

    #[test]
    fn a_drop_is_checked_with_its_table_and_its_name() {
        let sql =
            asked("ALTER TABLE IF EXISTS s.\"T\" ADD b int, DROP COLUMN IF EXISTS id, DROP CONSTRAINT k")
                .unwrap()
                .unwrap();
        assert_eq!(sql.matches("to_regclass(E's.\"T\"')").count(), 2, "{sql}");
        assert!(sql.contains("parse_ident(E'id')") && sql.contains("parse_ident(E'k')"), "{sql}");
        for none in [
            "ALTER TABLE t ALTER COLUMN c DROP DEFAULT",
            "ALTER TABLE t ALTER c DROP NOT NULL",
            "ALTER TABLE",
            "SELECT 1",
        ] {
            assert_eq!(asked(none), Ok(None), "{none}");
        }
    }

    #[test]
    fn a_lock_is_checked_with_the_columns_that_are_fixed() {
        let sql = asked("SELECT v FROM ck WHERE A = 1 AND ($1 = ck.b) AND c > 1 AND d = e FOR UPDATE")
            .unwrap()
            .unwrap();
        assert!(sql.contains("to_regclass(E'ck')") && sql.contains("ARRAY[E'a', E'b']"), "{sql}");
        let sql = asked("SELECT v FROM ck WHERE a = 1 OR b = 1 FOR UPDATE").unwrap().unwrap();
        assert!(sql.contains("ARRAY[]"), "{sql}");
        for several in
            ["SELECT 1 FROM a, b FOR UPDATE", "SELECT 1 FROM (SELECT 1 FROM a JOIN b USING (c) FOR UPDATE) s"]
        {
            assert!(asked(several).is_err(), "{several}");
        }
        assert_eq!(asked("SELECT 'UPDATE' FROM a, b"), Ok(None));
    }

    proptest! {
        #[test]
        fn no_statement_makes_it_panic(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "ALTER", "TABLE", "IF", "EXISTS", "DROP", "COLUMN", "CONSTRAINT", "SELECT", "FROM", "WHERE", "FOR", "UPDATE", "a",
                    "=", "é", "'", "\"", "(", ")", ".",
                ]),
                0..10,
            ),
        ) {
            for head in ["ALTER TABLE", "SELECT 1 FROM a WHERE"] {
                // Every query is for a refusal.
                if let Ok(Some(question)) = asked(&format!("{head} {}", words.join(" "))) {
                    prop_assert!(question.starts_with("SELECT '0A000'"));
                }
            }
        }
    }
}
