//! SQL functions for tests and demos: `sleep_ms`, `progress`, `generate_series`.

use std::time::Duration;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, Error, Result, ffi};

use crate::execution::current;

pub(crate) fn register(connection: &Connection) -> Result<()> {
    // Not deterministic: otherwise SQLite would call it once per statement.
    connection.create_scalar_function("sleep_ms", 1, FunctionFlags::SQLITE_UTF8, sleep_ms)?;
    connection.create_scalar_function("progress", 2, FunctionFlags::SQLITE_UTF8, progress)?;
    rusqlite::vtab::series::load_module(connection)
}

/// `sleep_ms(n)` sleeps for n milliseconds and returns n. It can be cancelled.
fn sleep_ms(context: &Context<'_>) -> Result<i64> {
    let asked = context.get::<i64>(0)?;
    let time = Duration::from_millis(u64::try_from(asked).unwrap_or(0));
    match current() {
        Some(run) if !run.sleep(time) => Err(interrupted()),
        _ => Ok(asked),
    }
}

/// `progress(done, total)` sets the progress of the statement and returns `done`.
fn progress(context: &Context<'_>) -> Result<f64> {
    let (done, total) = (context.get::<f64>(0)?, context.get::<f64>(1)?);
    if let Some(run) = current() {
        run.report_progress(if total > 0.0 { done / total } else { 1.0 });
    }
    Ok(done)
}

fn interrupted() -> Error {
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERRUPT), None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::Failure;
    use crate::execution::Execution;

    #[test]
    fn a_statement_tells_its_progress_and_can_be_interrupted_in_its_sleep() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        let run = Execution::new(Arc::default(), Duration::ZERO);
        let _entered = run.enter();
        let sum: f64 = connection
            .query_row("SELECT sum(progress(value, 8)) FROM generate_series(1, 4)", [], |row| row.get(0))
            .unwrap();
        assert!((sum - 10.0).abs() < f64::EPSILON);
        assert_eq!(run.progress(), Some(0.5));
        run.cancel();
        let error = connection.query_row("SELECT sleep_ms(3600000)", [], |_| Ok(())).unwrap_err();
        assert!(matches!(Failure::from(error), Failure::Interrupted));
    }
}
