//! Finds the rows that FOR UPDATE or FOR KEY SHARE locks: the same query, selecting ctids.

use sqlparser::ast::{
    Expr, GroupByExpr, Ident, LockClause, LockType, Query, Select, SelectItem, SetExpr, TableFactor,
    TableWithJoins, Visit, Visitor,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};
use std::ops::ControlFlow;

use super::change_log::LockStrength;
use crate::builtin::syntax;
use crate::error::SqlError;
use crate::statement::Statement;

/// A query for the tables and ctids of locked rows: two columns for each table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LockQuery {
    pub(super) sql: String,
    pub(super) strength: LockStrength,
}

/// The queries for the rows that a statement locks, one for each locking clause.
pub(super) fn locking(statement: &Statement) -> Result<Vec<LockQuery>, SqlError> {
    if !statement.locks() {
        return Ok(Vec::new());
    }
    let parsed = parse(statement.text())?.ok_or_else(|| cannot_follow("it is not understood"))?;
    let mut found = Found::default();
    match parsed.visit(&mut found) {
        ControlFlow::Break(reason) => Err(cannot_follow(reason)),
        ControlFlow::Continue(()) if found.0.is_empty() => Err(cannot_follow("it is not understood")),
        ControlFlow::Continue(()) => Ok(found.0),
    }
}

/// Rows of a view have no ctid. The client did not select one, so it gets an error about its own statement.
pub(super) fn explained(error: SqlError) -> SqlError {
    let placeless =
        error.code == "42703" && [".tableoid", ".ctid"].iter().any(|place| error.message.contains(place));
    if placeless { cannot_follow("it locks rows of a view") } else { error }
}

fn cannot_follow(reason: &str) -> SqlError {
    SqlError::unsupported("dsql-local cannot tell which rows this statement locks")
        .detail(reason.to_owned())
        .hint("Lock rows of tables by name, in a query or subquery that refers to nothing outside of it.")
}

fn parse(sql: &str) -> Result<Option<Vec<sqlparser::ast::Statement>>, SqlError> {
    let dialect = PostgreSqlDialect {};
    let Ok(mut tokens) = Tokenizer::new(&dialect, sql).tokenize() else { return Ok(None) };
    if !syntax::is_shallow(&tokens) {
        return Err(SqlError::new("54001", "the statement is nested too deeply"));
    }
    tokens.retain(|token| !matches!(token, Token::Whitespace(_)));
    // The parser does not know FOR KEY SHARE. FOR SHARE was refused before.
    let is = |token: &Token, keyword: Keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    let mut at = 1;
    while at + 1 < tokens.len() {
        let key_share = is(&tokens[at - 1], Keyword::FOR)
            && is(&tokens[at], Keyword::KEY)
            && is(&tokens[at + 1], Keyword::SHARE);
        if key_share {
            tokens.remove(at);
        }
        at += 1;
    }
    let parser = Parser::new(&dialect).with_recursion_limit(syntax::DEPTH).with_tokens(tokens);
    Ok({ parser }.parse_statements().ok())
}

#[derive(Default)]
struct Found(Vec<LockQuery>);

impl Visitor for Found {
    type Break = &'static str;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<&'static str> {
        for clause in &query.locks {
            match rewrite(query, clause) {
                Ok(locking) => self.0.extend(locking),
                Err(reason) => return ControlFlow::Break(reason),
            }
        }
        ControlFlow::Continue(())
    }
}

/// The same query for ctids, also for subqueries in FROM, which are locked with it.
fn rewrite(query: &Query, clause: &LockClause) -> Result<Vec<LockQuery>, &'static str> {
    let SetExpr::Select(select) = &*query.body else { return Err("it locks rows of what is not a SELECT") };
    let (mut names, mut inner) = (Vec::new(), Vec::new());
    for factor in select.from.iter().flat_map(factors) {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let last = name.0.last().and_then(|part| part.as_ident()).cloned();
                names.extend(alias.as_ref().map(|alias| alias.name.clone()).or(last));
            }
            TableFactor::Derived { subquery, alias, .. } => {
                let wanted = |of: &Ident| alias.as_ref().is_some_and(|alias| alias.name == *of);
                if of(clause).is_none_or(wanted) {
                    inner.extend(rewrite(subquery, &LockClause { of: None, ..clause.clone() })?);
                }
            }
            _ => return Err("it locks rows of what is neither a table nor a subquery"),
        }
    }
    let with = query.with.iter().flat_map(|with| &with.cte_tables).map(|table| &table.alias.name);
    let with: Vec<&Ident> = with.collect();
    names.retain(|name| of(clause).is_none_or(|of| of == name) && !with.contains(&name));
    if names.is_empty() {
        return Ok(inner);
    }
    let column = |table: &Ident, column: &str| {
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![table.clone(), Ident::new(column)]))
    };
    let projection = names.iter().flat_map(|name| [column(name, "tableoid"), column(name, "ctid")]).collect();
    let places = Select { projection, ..(**select).clone() };
    if places.distinct.is_some()
        || !matches!(&places.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
    {
        return Err("it locks rows of what is no table's row");
    }
    let of = of(clause).map(|of| format!(" OF {of}")).unwrap_or_default();
    // The order matters only with a limit.
    let order_by = query.limit_clause.as_ref().and(query.order_by.clone());
    let body = Query {
        body: Box::new(SetExpr::Select(Box::new(places))),
        locks: Vec::new(),
        order_by,
        ..query.clone()
    };
    let (strength, words) = match clause.lock_type {
        LockType::Update => (LockStrength::Update, "UPDATE"),
        LockType::Share => (LockStrength::KeyShare, "KEY SHARE"),
    };
    let nonblock = clause.nonblock.as_ref().map(|how| format!(" {how}")).unwrap_or_default();
    inner.push(LockQuery { sql: format!("{body} FOR {words}{of}{nonblock}"), strength });
    Ok(inner)
}

fn of(clause: &LockClause) -> Option<&Ident> {
    clause.of.as_ref().and_then(|name| name.0.last()).and_then(|part| part.as_ident())
}

fn factors(from: &TableWithJoins) -> Vec<&TableFactor> {
    let joined = from.joins.iter().map(|join| &join.relation);
    let all = std::iter::once(&from.relation).chain(joined);
    all.flat_map(|factor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => factors(table_with_joins),
        factor => vec![factor],
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Result<Vec<(String, LockStrength)>, SqlError> {
        let found = locking(&Statement::split(sql)[0])?;
        Ok(found.into_iter().map(|locking| (locking.sql, locking.strength)).collect())
    }

    #[test]
    fn the_same_query_for_places() {
        let (update, share) = (LockStrength::Update, LockStrength::KeyShare);
        for (sql, expected, strength) in [
            (
                "SELECT a, b FROM t WHERE id = $1 FOR UPDATE",
                "SELECT t.tableoid, t.ctid FROM t WHERE id = $1 FOR UPDATE",
                update,
            ),
            (
                "select * from s.t x join u on u.id = x.id order by 1 for key share of x",
                "SELECT x.tableoid, x.ctid FROM s.t x JOIN u ON u.id = x.id FOR KEY SHARE OF x",
                share,
            ),
            (
                "SELECT 1 FROM t, u ORDER BY a LIMIT 3 FOR UPDATE",
                "SELECT t.tableoid, t.ctid, u.tableoid, u.ctid FROM t, u ORDER BY a LIMIT 3 FOR UPDATE",
                update,
            ),
            (
                "UPDATE t SET a = 1 WHERE id IN (SELECT id FROM q WHERE b LIMIT 1 FOR UPDATE)",
                "SELECT q.tableoid, q.ctid FROM q WHERE b LIMIT 1 FOR UPDATE",
                update,
            ),
            (
                "SELECT count(*) FROM (SELECT 1 FROM t WHERE id < 10 FOR UPDATE) s",
                "SELECT t.tableoid, t.ctid FROM t WHERE id < 10 FOR UPDATE",
                update,
            ),
            (
                "SELECT x FROM (SELECT x FROM t WHERE y) s FOR UPDATE",
                "SELECT t.tableoid, t.ctid FROM t WHERE y FOR UPDATE",
                update,
            ),
        ] {
            assert_eq!(of(sql), Ok(vec![(expected.to_owned(), strength)]), "{sql}");
        }
    }

    #[test]
    fn a_statement_without_locks_needs_no_query() {
        for sql in [
            "SELECT 'for update'",
            "UPDATE t SET a = 1",
            "SELECT * FROM t -- for update",
            "SELECT forty FROM t",
        ] {
            assert_eq!(of(sql), Ok(Vec::new()), "{sql}");
        }
    }

    #[test]
    fn a_lock_that_cannot_be_followed_is_refused_with_the_reason() {
        let error = of("SELECT * FROM generate_series(1, 2) g FOR UPDATE").unwrap_err();
        assert_eq!(error.code, "0A000");
        assert!(error.detail.is_some() && error.hint.is_some());
    }
}
