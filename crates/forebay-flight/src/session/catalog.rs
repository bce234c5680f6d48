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

/// The name of one table. A table's bare name converts into it.
///
/// ```
/// use forebay_flight::TableName;
///
/// let bare = TableName::from("city");
/// let full = TableName { schema: Some("main"), ..bare };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableName<'a> {
    /// The catalog. Default: the server's choice.
    pub catalog: Option<&'a str>,
    /// The schema. Default: the server's choice.
    pub schema: Option<&'a str>,
    /// The table.
    pub table: &'a str,
}

impl<'a> From<&'a str> for TableName<'a> {
    fn from(table: &'a str) -> Self {
        Self { catalog: None, schema: None, table }
    }
}

impl TableName<'_> {
    fn owned(self) -> (Option<String>, Option<String>, String) {
        (self.catalog.map(str::to_owned), self.schema.map(str::to_owned), self.table.to_owned())
    }
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

    /// The tables, as `catalog_name`, `db_schema_name`, `table_name`, `table_type` and, on request,
    /// `table_schema`.
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
    pub async fn primary_keys<'a>(&mut self, table: impl Into<TableName<'a>>) -> Result<QueryResult> {
        let (catalog, db_schema, table) = table.into().owned();
        self.catalog_query(CommandGetPrimaryKeys { catalog, db_schema, table }).await
    }

    /// The columns of other tables that refer to this table's primary key, as Flight SQL defines them.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn exported_keys<'a>(&mut self, table: impl Into<TableName<'a>>) -> Result<QueryResult> {
        let (catalog, db_schema, table) = table.into().owned();
        self.catalog_query(CommandGetExportedKeys { catalog, db_schema, table }).await
    }

    /// The columns of this table that refer to the primary keys of others, as Flight SQL defines them.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn imported_keys<'a>(&mut self, table: impl Into<TableName<'a>>) -> Result<QueryResult> {
        let (catalog, db_schema, table) = table.into().owned();
        self.catalog_query(CommandGetImportedKeys { catalog, db_schema, table }).await
    }

    /// The columns of the table `foreign` that refer to the primary key of the table `parent`, as Flight SQL
    /// defines them.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn cross_reference<'a>(
        &mut self,
        parent: impl Into<TableName<'a>>,
        foreign: impl Into<TableName<'a>>,
    ) -> Result<QueryResult> {
        let (pk_catalog, pk_db_schema, pk_table) = parent.into().owned();
        let (fk_catalog, fk_db_schema, fk_table) = foreign.into().owned();
        let tables = CommandGetCrossReference {
            pk_catalog,
            pk_db_schema,
            pk_table,
            fk_catalog,
            fk_db_schema,
            fk_table,
        };
        self.catalog_query(tables).await
    }

    /// The server's data types, as Flight SQL's `GetXdbcTypeInfo` defines them: all, or the one with this
    /// number.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn type_info(&mut self, data_type: Option<i32>) -> Result<QueryResult> {
        self.catalog_query(CommandGetXdbcTypeInfo { data_type }).await
    }

    /// What the server reports about itself: all entries, or those with these numbers of Flight SQL's
    /// `SqlInfo`.
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
