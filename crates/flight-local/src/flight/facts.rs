//! What the server says of itself.

use arrow_flight::error::Result;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{Nullable, Searchable, SqlInfo, SqlSupportedTransaction, XdbcDataType};
use arrow_schema::Schema;

use crate::config::{Config, Support};

pub(super) fn sql_info_schema() -> Schema {
    SqlInfoDataBuilder::schema().clone()
}

pub(super) fn sql_info(config: &Config) -> Result<SqlInfoData> {
    let cancels = [config.actions.cancel_flight_info, config.actions.cancel_query].contains(&Support::Known);
    let mut facts = SqlInfoDataBuilder::new();
    facts.append(SqlInfo::FlightSqlServerName, "flight-local");
    facts.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    facts.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    facts.append(SqlInfo::FlightSqlServerReadOnly, false);
    facts.append(SqlInfo::FlightSqlServerSql, true);
    facts.append(SqlInfo::FlightSqlServerSubstrait, false);
    facts.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    facts.append(SqlInfo::FlightSqlServerCancel, cancels);
    facts.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    facts.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, true);
    facts.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    facts.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    facts.append(SqlInfo::SqlDdlCatalog, false);
    facts.append(SqlInfo::SqlDdlSchema, false);
    facts.append(SqlInfo::SqlDdlTable, true);
    facts.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    facts.append(SqlInfo::SqlKeywords, KEYWORDS);
    facts.build()
}

/// Those that a shell completes.
const KEYWORDS: &[&str] = &[
    "ALTER",
    "AND",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COMMIT",
    "CREATE",
    "DELETE",
    "DESC",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "INDEX",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "PRAGMA",
    "PRIMARY",
    "RETURNING",
    "ROLLBACK",
    "SELECT",
    "SET",
    "TABLE",
    "TEMP",
    "THEN",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];

/// The types that a column can be declared with.
pub(super) fn types() -> Result<XdbcTypeInfoData> {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, kind, size, quote) in [
        ("BIGINT", XdbcDataType::XdbcBigint, Some(64), None),
        ("BLOB", XdbcDataType::XdbcVarbinary, None, Some("'")),
        ("BOOLEAN", XdbcDataType::XdbcBit, Some(1), None),
        ("DATE", XdbcDataType::XdbcDate, None, Some("'")),
        ("DOUBLE", XdbcDataType::XdbcDouble, Some(53), None),
        ("TEXT", XdbcDataType::XdbcVarchar, None, Some("'")),
        ("TIMESTAMP", XdbcDataType::XdbcTimestamp, None, Some("'")),
    ] {
        types.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type: kind,
            sql_data_type: kind,
            column_size: size,
            literal_prefix: quote.map(str::to_owned),
            literal_suffix: quote.map(str::to_owned),
            nullable: Nullable::NullabilityNullable,
            searchable: Searchable::Full,
            case_sensitive: name == "TEXT",
            ..XdbcTypeInfo::default()
        });
    }
    types.build()
}
