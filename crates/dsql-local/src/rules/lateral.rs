//! LEFT JOIN LATERAL with references to the outer query, which the service does not plan.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{Expr, JoinOperator, Select, TableFactor, TableWithJoins, Visit, Visitor};

use crate::builtin::syntax;
use crate::error::SqlError;
use crate::statement::Statement;

pub(super) fn check(statement: &Statement) -> Result<(), SqlError> {
    if !statement.contains_ignore_case("lateral") {
        return Ok(());
    }
    // The database reports a syntax error.
    let Ok(parsed) = syntax::parse(statement.text()) else { return Ok(()) };
    match parsed.visit(&mut LateralJoins) {
        // The text of the service is not known.
        ControlFlow::Break(()) => Err(SqlError::new(
            "42804",
            "LEFT JOIN LATERAL with references to the outer query is not supported",
        )),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct LateralJoins;

impl Visitor for LateralJoins {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        select.from.iter().try_for_each(joins)
    }
}

/// Breaks if a lateral subquery on the right of a LEFT JOIN refers to a table on its left.
fn joins(from: &TableWithJoins) -> ControlFlow<()> {
    let mut left: BTreeSet<String> = name(&from.relation).into_iter().collect();
    for join in &from.joins {
        let is_left = matches!(join.join_operator, JoinOperator::Left(_) | JoinOperator::LeftOuter(_));
        if let TableFactor::Derived { lateral: true, subquery, .. } = &join.relation
            && is_left
        {
            subquery.visit(&mut References { outer: left.clone() })?;
        }
        left.extend(name(&join.relation));
    }
    ControlFlow::Continue(())
}

/// Looks for columns of the outer tables.
struct References {
    outer: BTreeSet<String>,
}

impl Visitor for References {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        // A table of the subquery hides an outer one with the same name.
        let own = select.from.iter().flat_map(|from| {
            std::iter::once(&from.relation)
                .chain(from.joins.iter().map(|join| &join.relation))
                .filter_map(name)
        });
        for own in own {
            self.outer.remove(&own);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let refers = match expr {
            Expr::CompoundIdentifier(parts) => {
                parts.len() > 1 && self.outer.contains(&parts[parts.len() - 2].value.to_lowercase())
            }
            _ => false,
        };
        if refers { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The name by which a query refers to a table.
fn name(factor: &TableFactor) -> Option<String> {
    let name = match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => alias.name.value.clone(),
        TableFactor::Table { name, .. } => name.0.last()?.as_ident()?.value.clone(),
        _ => return None,
    };
    Some(name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_left_join_with_outer_references_is_refused() {
        let refused = |sql: &str| check(&Statement::split(sql)[0]).is_err();
        for sql in [
            "SELECT * FROM a LEFT JOIN LATERAL (SELECT * FROM b WHERE b.a_id = a.id LIMIT 1) x ON true",
            "SELECT * FROM s.a AS t left outer join lateral (SELECT T.id) x ON true",
            "SELECT 1 UNION ALL SELECT x.i FROM a LEFT JOIN LATERAL (SELECT a.id AS i) x ON true",
            "SELECT 1 FROM (SELECT a.id FROM a, b JOIN c ON true LEFT JOIN LATERAL (SELECT c.id + 1) x ON true) y",
        ] {
            assert!(refused(sql), "{sql}");
        }
        for sql in [
            "SELECT * FROM a JOIN LATERAL (SELECT * FROM b WHERE b.a_id = a.id LIMIT 1) x ON true",
            "SELECT * FROM a, LATERAL (SELECT a.id) x",
            "SELECT * FROM a LEFT JOIN LATERAL (SELECT b.id FROM b) x ON x.id = a.id",
            "SELECT * FROM a LEFT JOIN LATERAL (SELECT a.id FROM a) x ON true",
            "SELECT * FROM a LEFT JOIN LATERAL (SELECT a.v FROM unnest(ARRAY[1, 2]) AS a (v)) x ON true",
            "SELECT * FROM a LEFT JOIN LATERAL generate_series(1, 2) g ON true",
            "SELECT lateral FROM",
        ] {
            assert!(!refused(sql), "{sql}");
        }
    }
}
