//! The catalog of a server: catalogs, schemas, tables, keys, types.

use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, ProstMessageExt,
};
use prost::Message;

use super::AsyncSession;
use crate::error::Result;
use crate::statement::fetch::Fetch;
use crate::statement::{QueryOptions, QueryResult};

/// Selects tables. Patterns are those of SQL's `LIKE`. A field that is not set matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFilter {
    /// The catalog.
    pub catalog: Option<String>,
    /// A pattern for the schema.
    pub schema: Option<String>,
    /// A pattern for the table's name.
    pub table: Option<String>,
    /// Table types, such as `TABLE` or `VIEW`.
    pub types: Vec<String>,
    /// Whether to add a binary column `table_schema` with each table's encoded schema.
    pub with_columns: bool,
}

impl AsyncSession {
    /// The catalogs, in a column `catalog_name`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn catalogs(&mut self) -> Result<QueryResult> {
        self.catalog_query(CommandGetCatalogs {}).await
    }

    /// The schemas of a catalog whose names match a pattern, as `catalog_name` and `db_schema_name`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn schemas(&mut self, catalog: Option<&str>, pattern: Option<&str>) -> Result<QueryResult> {
        let (catalog, pattern) = (catalog.map(str::to_owned), pattern.map(str::to_owned));
        self.catalog_query(CommandGetDbSchemas { catalog, db_schema_filter_pattern: pattern }).await
    }

    /// The tables, as `catalog_name`, `db_schema_name`, `table_name`, `table_type` and, on request, `table_schema`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn tables(&mut self, filter: TableFilter) -> Result<QueryResult> {
        let TableFilter { catalog, schema, table, types, with_columns } = filter;
        self.catalog_query(CommandGetTables {
            catalog,
            db_schema_filter_pattern: schema,
            table_name_filter_pattern: table,
            table_types: types,
            include_schema: with_columns,
        })
        .await
    }

    /// The table types, in a column `table_type`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn table_types(&mut self) -> Result<QueryResult> {
        self.catalog_query(CommandGetTableTypes {}).await
    }

    /// The columns of a table's primary key, as Flight SQL defines them.
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
        self.catalog_query(CommandGetPrimaryKeys { catalog, db_schema, table: table.to_owned() }).await
    }

    /// What the server reports about itself: all entries, or those with these numbers of Flight SQL's `SqlInfo`.
    ///
    /// # Errors
    /// See [`Error`](crate::Error).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn sql_info(&mut self, entries: &[u32]) -> Result<QueryResult> {
        self.catalog_query(CommandGetSqlInfo { info: entries.to_vec() }).await
    }

    async fn catalog_query<C: ProstMessageExt>(&mut self, command: C) -> Result<QueryResult> {
        let limits = self.limits(&QueryOptions::new());
        let permit = self.permit(&limits).await?;
        let command = command.as_any().encode_to_vec().into();
        let fetch = Fetch::start_catalog(permit, command, limits).await?;
        fetch.collect().await.map_err(|(error, _)| error)
    }
}
