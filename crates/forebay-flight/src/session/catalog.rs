//! The catalog of a server: catalogs, schemas, tables, keys, types.

use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, ProstMessageExt,
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
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn catalogs(&mut self) -> Result<QueryResult> {
        self.catalog_query(CommandGetCatalogs {}).await
    }

    /// The schemas of a catalog whose names match a pattern, as `catalog_name` and `db_schema_name`.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn schemas(&mut self, catalog: Option<&str>, pattern: Option<&str>) -> Result<QueryResult> {
        let (catalog, pattern) = (catalog.map(str::to_owned), pattern.map(str::to_owned));
        self.catalog_query(CommandGetDbSchemas { catalog, db_schema_filter_pattern: pattern }).await
    }

    /// The tables, as `catalog_name`, `db_schema_name`, `table_name`, `table_type` and, on request, `table_schema`.
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
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn table_types(&mut self) -> Result<QueryResult> {
        self.catalog_query(CommandGetTableTypes {}).await
    }

    /// The columns of a table's primary key, as Flight SQL defines them.
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

    /// The columns of other tables that refer to this table's primary key, as Flight SQL defines them.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn exported_keys(
        &mut self,
        catalog: Option<&str>,
        schema: Option<&str>,
        table: &str,
    ) -> Result<QueryResult> {
        let (catalog, db_schema) = (catalog.map(str::to_owned), schema.map(str::to_owned));
        self.catalog_query(CommandGetExportedKeys { catalog, db_schema, table: table.to_owned() }).await
    }

    /// The columns of this table that refer to the primary keys of others, as Flight SQL defines them.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn imported_keys(
        &mut self,
        catalog: Option<&str>,
        schema: Option<&str>,
        table: &str,
    ) -> Result<QueryResult> {
        let (catalog, db_schema) = (catalog.map(str::to_owned), schema.map(str::to_owned));
        self.catalog_query(CommandGetImportedKeys { catalog, db_schema, table: table.to_owned() }).await
    }

    /// The columns of the foreign table that refer to the primary key of the parent table, as Flight SQL defines them.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn cross_reference(
        &mut self,
        parent_catalog: Option<&str>,
        parent_schema: Option<&str>,
        parent_table: &str,
        foreign_catalog: Option<&str>,
        foreign_schema: Option<&str>,
        foreign_table: &str,
    ) -> Result<QueryResult> {
        self.catalog_query(CommandGetCrossReference {
            pk_catalog: parent_catalog.map(str::to_owned),
            pk_db_schema: parent_schema.map(str::to_owned),
            pk_table: parent_table.to_owned(),
            fk_catalog: foreign_catalog.map(str::to_owned),
            fk_db_schema: foreign_schema.map(str::to_owned),
            fk_table: foreign_table.to_owned(),
        })
        .await
    }

    /// The server's data types, as Flight SQL's `GetXdbcTypeInfo` defines them: all, or the one with this number.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn type_info(&mut self, data_type: Option<i32>) -> Result<QueryResult> {
        self.catalog_query(CommandGetXdbcTypeInfo { data_type }).await
    }

    /// What the server reports about itself: all entries, or those with these numbers of Flight SQL's `SqlInfo`.
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
