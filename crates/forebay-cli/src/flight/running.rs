//! Runs a statement, from the call to its last row.

use std::io::Write;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use forebay::rt::{self, Runtime};
use forebay_flight::{AsyncSession, CancelHandle, Error, QueryOptions, QueryStream};

use super::format::Format;
use super::out::Out;
use super::progress::{Spinner, TICK};
use super::statement::{Kind, Statement};
use super::table::Layout;

/// How many rows go to a terminal at a time.
const TERMINAL_ROWS: usize = 500;

/// How a statement runs, and how its result is written.
#[derive(Clone)]
pub(crate) struct RunOptions {
    pub(crate) out: Out,
    pub(crate) format: Format,
    pub(crate) width: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: CancelHandle,
}

impl RunOptions {
    pub(crate) fn query_options(&self) -> QueryOptions {
        let options = QueryOptions::new().with_cancel(self.cancel.clone());
        match self.timeout {
            Some(timeout) => options.with_timeout(timeout),
            None => options,
        }
    }

    /// The plan of an EXPLAIN is a drawing, which must not be cut.
    fn layout(&self, statement: &Statement) -> Layout {
        let keeps_lines = statement.explains;
        Layout { width: self.width.filter(|_| !keeps_lines), keeps_lines }
    }
}

/// The result of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Its rows were written.
    Rows,
    /// The number of rows that were changed, if the server reports it.
    Changed(Option<u64>),
}

#[derive(Debug)]
pub(crate) enum RunError {
    /// The statement failed.
    Statement(Error),
    /// Its result could not be written. The statement is cancelled.
    Output(anyhow::Error),
}

impl From<Error> for RunError {
    fn from(error: Error) -> Self {
        Self::Statement(error)
    }
}

impl From<anyhow::Error> for RunError {
    fn from(error: anyhow::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs a statement and writes its result.
///
/// # Cancel safety
/// Dropping it cancels the statement.
pub(crate) async fn run(
    session: &mut AsyncSession,
    statement: &Statement,
    options: &RunOptions,
    runtime: &dyn Runtime,
    spinner: &mut Spinner,
) -> Result<Done, RunError> {
    let text = statement.text.as_str();
    match statement.kind {
        Kind::Update => {
            let updating = session.update_with_options(text, options.query_options());
            let updated = spinner.wait_for(runtime, updating, || None).await?;
            Ok(Done::Changed(updated.rows_affected()))
        }
        Kind::Query => {
            let starting =
                session.query_stream_with_options(text, spinner.with_progress(options.query_options()));
            let stream = spinner.wait_for(runtime, starting, || None).await?;
            let layout = options.layout(statement);
            write(stream, layout, options, runtime, spinner).await
        }
    }
}

/// Writes a result as it arrives. It holds one batch, and the sample of a table.
async fn write(
    mut stream: QueryStream<'_>,
    layout: Layout,
    options: &RunOptions,
    runtime: &dyn Runtime,
    spinner: &mut Spinner,
) -> Result<Done, RunError> {
    let mut out = options.out.clone();
    let has_columns = !stream.schema().fields().is_empty();
    let mut writer = options.format.begin(out.clone(), stream.schema(), layout)?;
    let is_spinning = !out.is_terminal();
    loop {
        match rt::within(runtime, TICK, stream.next_batch()).await {
            None => {
                if spinner.rows > 0 && !is_spinning {
                    spinner.clear();
                    writer.pause()?;
                    out.flush().map_err(anyhow::Error::from)?;
                } else {
                    spinner.tick(runtime.now());
                }
            }
            Some(None) => break,
            Some(Some(batch)) => {
                let batch = batch?;
                spinner.rows += batch.num_rows() as u64;
                if !is_spinning {
                    spinner.clear();
                }
                let rows = batch.num_rows();
                let slice = if is_spinning { rows.max(1) } else { TERMINAL_ROWS };
                for from in (0..rows).step_by(slice) {
                    // A terminal is slow: Ctrl-C does not wait for the rest of a batch.
                    if options.cancel.is_cancelled() {
                        return Err(Error::Cancelled { may_have_run: true }.into());
                    }
                    writer.batch(&batch.slice(from, slice.min(rows - from)))?;
                    out.flush().map_err(anyhow::Error::from)?;
                }
            }
        }
    }
    spinner.clear();
    writer.end()?;
    out.flush().map_err(anyhow::Error::from)?;
    Ok(if has_columns || spinner.rows > 0 { Done::Rows } else { Done::Changed(None) })
}

/// Writes a result that is complete.
pub(crate) fn show(options: &RunOptions, schema: &SchemaRef, batches: &[RecordBatch]) -> anyhow::Result<()> {
    let mut out = options.out.clone();
    let layout = Layout { width: options.width, keeps_lines: false };
    let mut writer = options.format.begin(out.clone(), schema, layout)?;
    batches.iter().try_for_each(|batch| writer.batch(batch))?;
    writer.end()?;
    Ok(out.flush()?)
}
