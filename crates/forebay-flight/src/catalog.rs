//! What there is on a server: catalogs, schemas, tables.

use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, ProstMessageExt,
};
use prost::Message;

use crate::error::Result;
use crate::fetch::Fetch;
use crate::query_options::QueryOptions;
use crate::result::QueryResult;
use crate::session::AsyncSession;

/// Which tables. Patterns are those of SQL's LIKE; what is not set matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFilter {
    /// Of this catalog.
    pub catalog: Option<String>,
    /// Of schemas like this.
    pub schema: Option<String>,
    /// With names like this.
    pub table: Option<String>,
    /// Of these types, `TABLE` or `VIEW` for instance.
    pub types: Vec<String>,
    /// With their columns, as a schema encoded in a binary column.
    pub with_columns: bool,
}

impl AsyncSession {
    /// The catalogs, as `catalog_name`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn catalogs(&mut self) -> Result<QueryResult> {
        self.ask(CommandGetCatalogs {}).await
    }

    /// The schemas, of a catalog and with names like a pattern, as `catalog_name` and `db_schema_name`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn schemas(&mut self, catalog: Option<&str>, pattern: Option<&str>) -> Result<QueryResult> {
        let (catalog, pattern) = (catalog.map(str::to_owned), pattern.map(str::to_owned));
        self.ask(CommandGetDbSchemas { catalog, db_schema_filter_pattern: pattern }).await
    }

    /// The tables, as `catalog_name`, `db_schema_name`, `table_name`, `table_type` and, if wanted, `table_schema`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn tables(&mut self, filter: TableFilter) -> Result<QueryResult> {
        let TableFilter { catalog, schema, table, types, with_columns } = filter;
        self.ask(CommandGetTables {
            catalog,
            db_schema_filter_pattern: schema,
            table_name_filter_pattern: table,
            table_types: types,
            include_schema: with_columns,
        })
        .await
    }

    /// The types of tables, as `table_type`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn table_types(&mut self) -> Result<QueryResult> {
        self.ask(CommandGetTableTypes {}).await
    }

    /// The columns of a table's primary key, as Flight SQL lists them.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn primary_keys(
        &mut self,
        catalog: Option<&str>,
        schema: Option<&str>,
        table: &str,
    ) -> Result<QueryResult> {
        let (catalog, db_schema) = (catalog.map(str::to_owned), schema.map(str::to_owned));
        self.ask(CommandGetPrimaryKeys { catalog, db_schema, table: table.to_owned() }).await
    }

    /// What the server says of itself: all of it, or the entries with these numbers of Flight SQL's `SqlInfo`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn sql_info(&mut self, entries: &[u32]) -> Result<QueryResult> {
        self.ask(CommandGetSqlInfo { info: entries.to_vec() }).await
    }

    async fn ask<C: ProstMessageExt>(&mut self, command: C) -> Result<QueryResult> {
        let limits = self.limits(QueryOptions::new());
        let turn = self.ready(&limits).await?;
        let command = command.as_any().encode_to_vec().into();
        let fetch = Fetch::ask(turn, command, limits).await?;
        fetch.collect().await.map_err(|(error, _)| error)
    }
}
