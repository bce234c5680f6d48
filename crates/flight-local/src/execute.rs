//! Runs statements on a session's connection, on a blocking thread.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::Schema;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Batch, Connection, Statement};

use crate::batch_builder::BatchBuilder;
use crate::error::Failure;
use crate::execution::Execution;
use crate::parameters::{Rows, parameter_columns};
use crate::result_stream::BatchSink;
use crate::runtime::now;

/// How long a row may wait for its batch to fill.
const LINGER: Duration = Duration::from_millis(50);

/// A statement and its parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoundStatement {
    pub(crate) text: String,
    /// The statement runs once for each row; none for statements without parameters.
    pub(crate) parameters: Option<Vec<RecordBatch>>,
}

impl BoundStatement {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), parameters: None }
    }
}

/// Runs all statements of a text and sends the result of the last.
pub(crate) fn query(
    connection: &Connection,
    bound: &BoundStatement,
    max_rows: usize,
    output: &mut dyn BatchSink,
    run: &Execution,
) -> Result<(), Failure> {
    let mut last = all_but_last(connection, &bound.text, run)?.0;
    if last.column_count() == 0 {
        let changed = each_row(&mut last, bound, |statement| run_to_end(connection, statement, run))?;
        // A statement without rows returns its number of changed rows.
        let count: ArrayRef = Arc::new(Int64Array::from(vec![changed]));
        let count = RecordBatch::try_from_iter([("Count", count)])?;
        output.schema(&count.schema())?;
        return output.batch(count);
    }
    let mut builder = BatchBuilder::new(&last);
    let mut begun = false;
    let mut send = |builder: &mut BatchBuilder| {
        if !std::mem::replace(&mut begun, true) {
            output.schema(&builder.schema())?;
        }
        match builder.rows {
            0 => Ok(()),
            _ => output.batch(builder.finish()?),
        }
    };
    let mut cut = now();
    each_row(&mut last, bound, |statement| {
        let mut rows = statement.raw_query();
        while let Some(row) = next(&mut rows, run)? {
            builder.append(row)?;
            // The types must not depend on timing: columns without a type wait.
            let late = || builder.is_decided() && now().duration_since(cut) > LINGER;
            if builder.is_full(max_rows) || late() {
                send(&mut builder)?;
                cut = now();
            }
        }
        Ok(0)
    })?;
    send(&mut builder)
}

/// Runs all statements of a text. Returns the number of changed rows.
pub(crate) fn update(
    connection: &Connection,
    bound: &BoundStatement,
    run: &Execution,
) -> Result<i64, Failure> {
    let (mut last, before) = all_but_last(connection, &bound.text, run)?;
    Ok(before + each_row(&mut last, bound, |statement| run_to_end(connection, statement, run))?)
}

/// Inspects a statement without running it. Returns `None` for several statements: a later one may need
/// tables that an earlier one creates.
pub(crate) fn describe<T>(
    connection: &Connection,
    text: &str,
    look: impl FnOnce(&Statement<'_>) -> T,
) -> Result<Option<T>, Failure> {
    let mut batch = Batch::new(connection, text);
    let statement = batch.next()?.ok_or_else(nothing)?;
    Ok(matches!(batch.next(), Ok(None)).then(|| look(&statement)))
}

/// Runs a statement to its end, as a server does that finds its columns that way.
pub(crate) fn plan(connection: &Connection, text: &str) -> Result<(), Failure> {
    let mut batch = Batch::new(connection, text);
    let mut statement = batch.next()?.ok_or_else(nothing)?;
    let mut rows = statement.raw_query();
    while rows.next()?.is_some() {}
    Ok(())
}

/// The schema by the first row of a query. A statement that writes does not run.
pub(crate) fn first_schema(connection: &Connection, bound: &BoundStatement) -> Result<Schema, Failure> {
    let mut batch = Batch::new(connection, &bound.text);
    let mut statement = batch.next()?.ok_or_else(nothing)?;
    let mut builder = BatchBuilder::new(&statement);
    if statement.readonly() {
        let mut rows = statement.raw_query();
        if let Some(row) = rows.next()? {
            builder.append(row)?;
        }
    }
    Ok(builder.schema().as_ref().clone())
}

/// Runs all statements of a text but the last, and returns the last. Each is prepared after the one before it
/// has run, because it may need its tables.
fn all_but_last<'a>(
    connection: &'a Connection,
    text: &str,
    run: &Execution,
) -> Result<(Statement<'a>, i64), Failure> {
    let mut batch = Batch::new(connection, text);
    let mut statement = batch.next()?.ok_or_else(nothing)?;
    let mut changed = 0;
    loop {
        // If this fails, it is prepared again below.
        let ahead = batch.next();
        if matches!(ahead, Ok(None)) {
            return Ok((statement, changed));
        }
        changed += run_to_end(connection, &mut statement, run)?;
        statement = match ahead {
            Ok(Some(next)) => next,
            _ => batch.next()?.ok_or_else(nothing)?,
        };
    }
}

fn nothing() -> Failure {
    Failure::Request("there is no statement in the text; give one, such as SELECT 1".to_owned())
}

/// Runs `act` once, or for each row of parameters. Returns the sum.
fn each_row(
    statement: &mut Statement<'_>,
    bound: &BoundStatement,
    mut act: impl FnMut(&mut Statement<'_>) -> Result<i64, Failure>,
) -> Result<i64, Failure> {
    let Some(batches) = &bound.parameters else {
        let wanted = statement.parameter_count();
        if wanted > 0 {
            return Err(Failure::Request(format!(
                "the statement has {wanted} parameters, and nothing is bound to them; bind one row of values"
            )));
        }
        return act(statement);
    };
    let mut sum = 0;
    for batch in batches {
        let columns = parameter_columns(statement, batch)?;
        let rows = Rows::new(batch)?;
        for row in 0..rows.len {
            rows.bind(row, &columns, statement)?;
            sum += act(statement)?;
        }
    }
    Ok(sum)
}

/// Runs a statement to its end. Returns the number of changed rows.
fn run_to_end(
    connection: &Connection,
    statement: &mut Statement<'_>,
    run: &Execution,
) -> Result<i64, Failure> {
    let before = connection.total_changes();
    let mut rows = statement.raw_query();
    while next(&mut rows, run)?.is_some() {}
    // SQLite keeps the last count if a statement changes nothing.
    let changed = if connection.total_changes() == before { 0 } else { connection.changes() };
    Ok(i64::try_from(changed).unwrap_or(i64::MAX))
}

/// The next row, unless the statement was cancelled.
fn next<'a, 'b>(
    rows: &'a mut rusqlite::Rows<'b>,
    run: &Execution,
) -> Result<Option<&'a rusqlite::Row<'b>>, Failure> {
    if run.is_cancelled() {
        return Err(Failure::Interrupted);
    }
    run.steps(1);
    Ok(rows.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(connection: &Connection, text: &str) -> Result<i64, Failure> {
        let run = Execution::new(Arc::default(), Duration::ZERO);
        update(connection, &BoundStatement::plain(text), &run)
    }

    #[test]
    fn counts_are_those_of_the_statements() {
        let connection = Connection::open_in_memory().unwrap();
        let create = "CREATE TABLE t (n INT); INSERT INTO t VALUES (1), (2); UPDATE t SET n = n + 1; -- end";
        assert_eq!(changed(&connection, create).unwrap(), 4);
        assert_eq!(changed(&connection, "CREATE TABLE u (n INT)").unwrap(), 0);
        assert_eq!(changed(&connection, "DELETE FROM t RETURNING n").unwrap(), 2);
        assert_eq!(changed(&connection, "SELECT 1").unwrap(), 0);
    }

    #[test]
    fn an_invalid_statement_is_an_error() {
        let connection = Connection::open_in_memory().unwrap();
        assert!(matches!(changed(&connection, " -- nothing"), Err(Failure::Request(_))));
        assert!(matches!(changed(&connection, "CREATE TABLE t (n INT); SELEC 1"), Err(Failure::Sql(_))));
        assert!(matches!(changed(&connection, "SELECT ?"), Err(Failure::Request(_))));
        let columns = |text: &str| describe(&connection, text, |statement| statement.column_count());
        assert_eq!(columns("SELECT 1, 2; -- one").unwrap(), Some(2));
        assert_eq!(columns("SELECT 1; SELECT 2").unwrap(), None);
        assert!(columns("SELEC 1").is_err());
    }

    #[test]
    fn a_cancelled_run_executes_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        let run = Execution::new(Arc::default(), Duration::ZERO);
        run.cancel();
        let error = update(&connection, &BoundStatement::plain("CREATE TABLE t (n INT)"), &run).unwrap_err();
        assert!(matches!(error, Failure::Interrupted));
        assert!(changed(&connection, "SELECT * FROM t").is_err());
    }
}
