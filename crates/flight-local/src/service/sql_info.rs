//! The server's `SqlInfo` and `XdbcTypeInfo`.

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
    let mut sql_info = SqlInfoDataBuilder::new();
    sql_info.append(SqlInfo::FlightSqlServerName, "flight-local");
    sql_info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    sql_info.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    sql_info.append(SqlInfo::FlightSqlServerReadOnly, false);
    sql_info.append(SqlInfo::FlightSqlServerSql, true);
    sql_info.append(SqlInfo::FlightSqlServerSubstrait, false);
    sql_info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    sql_info.append(SqlInfo::FlightSqlServerCancel, cancels);
    sql_info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    sql_info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, true);
    sql_info.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    sql_info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    sql_info.append(SqlInfo::SqlDdlCatalog, false);
    sql_info.append(SqlInfo::SqlDdlSchema, false);
    sql_info.append(SqlInfo::SqlDdlTable, true);
    sql_info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    let keywords: Vec<&str> = KEYWORDS.split(' ').collect();
    sql_info.append(SqlInfo::SqlKeywords, &keywords[..]);
    sql_info.build()
}

/// The keywords that a shell completes.
const KEYWORDS: &str = "ALTER AND AS ASC BEGIN BETWEEN BY CASE CAST COMMIT CREATE DELETE DESC DISTINCT DROP ELSE END EXCEPT \
    EXISTS EXPLAIN FROM GROUP HAVING IN INDEX INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE LIMIT NOT \
    NULL OFFSET ON OR ORDER OUTER PRAGMA PRIMARY RETURNING ROLLBACK SELECT SET TABLE TEMP THEN UNION \
    UPDATE USING VALUES VIEW WHEN WHERE WITH";

/// The types of column declarations.
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
