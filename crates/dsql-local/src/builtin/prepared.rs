//! A planned statement and its description.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::database::Conn;
use super::errors::translate;
use super::infer::Item;
use super::plan::Plan;
use super::plan_cache::{Key, LARGE, PARAMETERS};
use super::types::Type;
use crate::engine::Description;
use crate::error::SqlError;

pub(super) struct Prepared {
    pub(super) plan: Plan,
    pub(super) description: Arc<Description>,
    pub(super) types: Vec<Type>,
    /// Whether it needed more than one time slice before, or surely will.
    pub(super) slow: AtomicBool,
    /// Whether it is too large to cache, here and in SQLite.
    pub(super) large: bool,
}

impl Prepared {
    /// Plans a statement for the schema that a connection sees.
    pub(super) fn make(conn: &Conn, (text, types): &Key) -> Result<Self, SqlError> {
        let catalog = |table: &str| columns_of(conn, table).unwrap_or_default();
        let given: Vec<Option<Type>> = types.iter().map(|oid| Type::from_oid(*oid)).collect();
        let plan = Plan::make(text, &given, &catalog)?;
        let mut description = Description {
            parameters: plan.parameters.iter().map(|of| of.oid()).collect(),
            columns: None,
            writes: plan.writes,
        };
        let mut column_types = Vec::new();
        if let Some(items) = &plan.items {
            let columns = if plan.job {
                items.iter().flatten().map(|(name, _)| (name.clone(), None)).collect()
            } else {
                let statement = conn.sqlite.prepare(&plan.sql).map_err(|error| translate(&error))?;
                let columns = statement.columns();
                let declared =
                    |column: &rusqlite::Column<'_>| column.decl_type().and_then(Type::from_declared);
                columns.iter().map(|column| (column.name().to_owned(), declared(column))).collect::<Vec<_>>()
            };
            let described = merge(columns, items);
            column_types = described.iter().map(|(_, of)| *of).collect();
            description.columns = Some(described.into_iter().map(|(name, of)| of.column(name)).collect());
        }
        let large = text.len().max(plan.sql.len()) > LARGE || plan.parameters.len() > PARAMETERS;
        // Preparing a large statement is slow by itself.
        let slow = AtomicBool::new(large);
        Ok(Self { plan, description: Arc::new(description), types: column_types, slow, large })
    }

    /// Roughly how many bytes it takes, with its key.
    pub(super) fn size(&self, (text, types): &Key) -> usize {
        let columns = self.description.columns.iter().flatten();
        // The plan and the description each keep the name.
        let columns: usize = columns.map(|column| 2 * (column.name.len() + 64)).sum();
        text.len() + 4 * types.len() + self.plan.sql.len() + 8 * self.plan.parameters.len() + columns + 256
    }
}

/// SQLite knows how many columns `*` has; the text has PostgreSQL's names and the types of expressions.
fn merge(columns: Vec<(String, Option<Type>)>, items: &[Item]) -> Vec<(String, Type)> {
    let stars = items.iter().filter(|item| item.is_none()).count();
    let aligned: Vec<Item> = match stars {
        0 => items.to_vec(),
        1 => {
            let width = (columns.len() + 1).saturating_sub(items.len());
            let spread = |item: &Item| match item {
                Some(_) => vec![item.clone()],
                None => vec![None; width],
            };
            items.iter().flat_map(spread).collect()
        }
        _ => vec![None; columns.len()],
    };
    let mut aligned = aligned.into_iter();
    let merged = columns.into_iter().map(|(name, declared)| {
        let (name, inferred) = aligned.next().flatten().unwrap_or((name, None));
        (name, inferred.or(declared).unwrap_or(Type::Text))
    });
    merged.collect()
}

fn columns_of(conn: &Conn, table: &str) -> rusqlite::Result<Vec<(String, Type)>> {
    let mut statement = conn.sqlite.prepare_cached("SELECT name, type FROM pragma_table_info(?1)")?;
    let rows =
        statement.query_map([table], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| row.map(|(name, declared)| (name, Type::from_declared(&declared).unwrap_or(Type::Text))))
        .collect()
}
