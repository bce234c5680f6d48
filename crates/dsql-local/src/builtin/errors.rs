//! Translates SQLite's errors to PostgreSQL's.

use rusqlite::{ErrorCode, ffi};

use super::syntax;
use super::types::Type;
use crate::error::SqlError;

pub(super) fn translate(error: &rusqlite::Error) -> SqlError {
    let rusqlite::Error::SqliteFailure(failure, message) = error else {
        return match error {
            rusqlite::Error::SqlInputError { msg, .. } => worded(msg),
            // The statement was planned for a schema with more columns.
            rusqlite::Error::InvalidColumnIndex(_) => SqlError::schema_conflict(),
            other => SqlError::new("XX000", other.to_string()),
        };
    };
    let message = message.clone().unwrap_or_else(|| failure.to_string());
    let code = match (failure.code, failure.extended_code) {
        (ErrorCode::OperationInterrupted, _) => return SqlError::deadline_exceeded(),
        // The same as when the writer is not free in time.
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => {
            return SqlError::change_conflict().detail(message);
        }
        (ErrorCode::ReadOnly, _) => "25006",
        (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
            return SqlError::new("23505", "duplicate key value violates unique constraint").detail(message);
        }
        (_, ffi::SQLITE_CONSTRAINT_NOTNULL) => "23502",
        (_, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => "23503",
        (_, ffi::SQLITE_CONSTRAINT_CHECK) => match message.split_once(": ").and_then(|(_, name)| coded(name))
        {
            Some(error) => return error,
            None => "23514",
        },
        (ErrorCode::ConstraintViolation, _) => "23000",
        (ErrorCode::DiskFull, _) => "53100",
        (ErrorCode::OutOfMemory | ErrorCode::TooBig, _) => "53200",
        _ => return worded(&message),
    };
    SqlError::new(code, message)
}

/// An error of this engine's own functions and checks: its text begins with the SQLSTATE.
fn coded(message: &str) -> Option<SqlError> {
    const CODES: [&str; 6] = ["22001", "22003", "22012", "22023", "22P02", "42704"];
    let (code, message) = message.split_once(": ")?;
    CODES.into_iter().find(|own| *own == code).map(|code| SqlError::new(code, message))
}

fn worded(message: &str) -> SqlError {
    if let Some(error) = coded(message) {
        return error;
    }
    let rest = |prefix: &str| message.strip_prefix(prefix);
    if let Some(table) = rest("no such table: ") {
        return SqlError::new("42P01", format!("relation \"{table}\" does not exist"));
    }
    if let Some(column) = rest("no such column: ") {
        // SQLite keeps the quotes of a quoted name, and adds advice about string literals.
        let column = column.split(" - should this be").next().unwrap_or(column).trim_matches('"');
        return SqlError::new("42703", format!("column \"{column}\" does not exist"));
    }
    if let Some(function) = rest("no such function: ") {
        return SqlError::new("42883", format!("function {function} does not exist"));
    }
    if let Some((table, _)) = rest("table ").and_then(|rest| rest.split_once(" already exists")) {
        return SqlError::new("42P07", format!("relation \"{}\" already exists", table.trim_matches('"')));
    }
    if message == "integer overflow" {
        return Type::Int8.out_of_range();
    }
    if rest("Expression tree is too large").is_some() || rest("parser stack overflow").is_some() {
        return SqlError::new("54001", "the statement is nested too deeply");
    }
    if rest("too many columns in").is_some() {
        return syntax::too_many_columns();
    }
    SqlError::new("42601", message)
}
