//! Functions of PostgreSQL that SQLite does not have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error};

use super::dates;
use super::types::{Type, bytea};
use crate::clock::Clock;
use crate::error::SqlError;
use crate::settings;
use crate::wire::Format;

const VERSION: &str = "PostgreSQL 16";

/// Registers the functions on a connection. All connections share `uuids`.
pub(super) fn register(
    connection: &Connection,
    clock: &Arc<Clock>,
    uuids: &Arc<AtomicU64>,
) -> rusqlite::Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let fresh = FunctionFlags::SQLITE_UTF8;
    for (name, text) in [
        ("version", VERSION),
        ("current_database", "postgres"),
        ("current_schema", "public"),
        ("current_user", "admin"),
        ("session_user", "admin"),
    ] {
        connection.create_scalar_function(name, 0, pure, move |_| Ok(text))?;
    }
    connection.create_scalar_function("pg_backend_pid", 0, pure, |_| Ok(1))?;
    connection.create_scalar_function("current_setting", 1, pure, |context| {
        let name: String = context.get(0)?;
        settings::default_value(&name).ok_or_else(|| {
            failure(SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\"")))
        })
    })?;
    for name in ["now", "transaction_timestamp", "statement_timestamp", "clock_timestamp"] {
        let clock = clock.clone();
        connection.create_scalar_function(name, 0, fresh, move |_| {
            Ok(dates::timestamp(dates::since_1970(clock.date()), true))
        })?;
    }
    let uuids = uuids.clone();
    connection.create_scalar_function("gen_random_uuid", 0, fresh, move |_| {
        Ok(random_uuid(uuids.fetch_add(1, Ordering::Relaxed)))
    })?;
    for of in Type::NUMBERS {
        let name = format!("pg_{}", of.name());
        connection.create_scalar_function(name.as_str(), 1, pure, move |context| {
            number(context.get_raw(0), of).map_err(failure)
        })?;
    }
    connection.create_scalar_function("pg_divisor", 1, pure, |context| {
        divisor(context.get_raw(0)).map_err(failure)
    })?;
    connection.create_scalar_function("pg_bool", 1, pure, |context| match context.get_raw(0) {
        ValueRef::Text(text) => Type::Bool.decode(text, Format::Text).map_err(failure),
        other => Ok(other.into()),
    })?;
    connection.create_scalar_function("pg_bytea", 1, pure, |context| match context.get_raw(0) {
        ValueRef::Text(text) => {
            let bytes = std::str::from_utf8(text).ok().and_then(bytea);
            bytes.map(Value::Blob).ok_or_else(|| failure(SqlError::new("22023", "invalid hexadecimal data")))
        }
        other => Ok(other.into()),
    })
}

/// The SQLSTATE passes through SQLite at the beginning of the text.
fn failure(error: SqlError) -> Error {
    Error::UserFunctionError(Box::new(error))
}

fn number(value: ValueRef<'_>, of: Type) -> Result<Value, SqlError> {
    match value {
        ValueRef::Text(text) => of.decode(text, Format::Text),
        ValueRef::Integer(number) => of.within(number).map(Value::Integer),
        ValueRef::Real(number) if of.range().is_some() => of.rounded(number).map(Value::Integer),
        other => Ok(other.into()),
    }
}

/// The divisor, unless it is zero.
fn divisor(value: ValueRef<'_>) -> Result<Value, SqlError> {
    let value = number(value, Type::Numeric)?;
    let zero = match value {
        Value::Integer(number) => number == 0,
        Value::Real(number) => number == 0.0,
        _ => false,
    };
    if zero { Err(SqlError::new("22012", "division by zero")) } else { Ok(value) }
}

/// The `number`th UUID of this emulator: it looks random and is the same in every run.
fn random_uuid(number: u64) -> String {
    let mut raw = [0; 16];
    Xoshiro256PlusPlus::seed_from_u64(number).fill_bytes(&mut raw);
    uuid::Builder::from_random_bytes(raw).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Speed;

    #[test]
    fn functions_answer_as_postgresql_does() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection, &Arc::new(Clock::new(Speed::STOPPED)), &Arc::default()).unwrap();
        let one =
            |sql: &str| connection.query_row(&format!("SELECT {sql}"), [], |row| row.get::<_, String>(0));
        assert_eq!(one("current_database()").unwrap(), "postgres");
        assert_eq!(one("current_setting('server_version_num')").unwrap(), "160015");
        assert!(one("current_setting('lc_collate')").is_err());
        assert_eq!(one("CAST(pg_bool('yes') AS TEXT)").unwrap(), "1");
        assert!(one("now()").unwrap().ends_with("+00"));
        let (first, second) = (one("gen_random_uuid()").unwrap(), one("gen_random_uuid()").unwrap());
        assert_ne!(first, second);
        assert_eq!((first.len(), &first[14..15]), (36, "4"));
    }
}
