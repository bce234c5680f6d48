//! One statement, from the call to its last row.

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

/// So many rows at a time go to a terminal.
const SCREENFUL: usize = 500;

/// How a statement is run and its result written.
#[derive(Clone)]
pub(crate) struct Manner {
    pub(crate) out: Out,
    pub(crate) format: Format,
    pub(crate) width: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: CancelHandle,
}

impl Manner {
    pub(crate) fn options(&self) -> QueryOptions {
        let options = QueryOptions::new().with_cancel(self.cancel.clone());
        match self.timeout {
            Some(timeout) => options.with_timeout(timeout),
            None => options,
        }
    }
}

/// What came of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Its rows were written.
    Rows,
    /// So many rows were changed, if that is known.
    Changed(Option<u64>),
}

/// Why a statement did not come to its end.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Its own, or the server's.
    Statement(Error),
    /// Its result could not be written. The statement is cancelled.
    Output(anyhow::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Statement(error)
    }
}

impl From<anyhow::Error> for Trouble {
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
    manner: &Manner,
    runtime: &dyn Runtime,
    spinner: &mut Spinner,
) -> Result<Done, Trouble> {
    let text = statement.text.as_str();
    match statement.kind {
        Kind::Update => {
            let updating = session.update_with_options(text, manner.options());
            let updated = spinner.attend(runtime, updating, || None).await?;
            Ok(Done::Changed(updated.rows_affected()))
        }
        Kind::Query => {
            let starting = session.query_stream_with_options(text, spinner.told_by(manner.options()));
            let stream = spinner.attend(runtime, starting, || None).await?;
            write(stream, manner, runtime, spinner).await?;
            Ok(Done::Rows)
        }
    }
}

/// Writes a result as it comes: no more of it than a batch is held, but for the sample of a table.
async fn write(
    mut stream: QueryStream<'_>,
    manner: &Manner,
    runtime: &dyn Runtime,
    spinner: &mut Spinner,
) -> Result<(), Trouble> {
    let mut out = manner.out.clone();
    let mut sheet = manner.format.begin(out.clone(), stream.schema(), manner.width)?;
    let turns = !out.is_terminal();
    loop {
        match rt::within(runtime, TICK, stream.next()).await {
            None => {
                if spinner.rows > 0 && !turns {
                    spinner.clear();
                    sheet.pause()?;
                    out.flush().map_err(anyhow::Error::from)?;
                } else {
                    spinner.turn(runtime.now());
                }
            }
            Some(None) => break,
            Some(Some(batch)) => {
                let batch = batch?;
                spinner.rows += batch.num_rows() as u64;
                if !turns {
                    spinner.clear();
                }
                let rows = batch.num_rows();
                let slice = if turns { rows.max(1) } else { SCREENFUL };
                for from in (0..rows).step_by(slice) {
                    // A terminal takes its time: whoever has seen enough need not wait for the rest of a batch.
                    if manner.cancel.is_cancelled() {
                        return Err(Error::Cancelled { may_have_run: true }.into());
                    }
                    sheet.batch(&batch.slice(from, slice.min(rows - from)))?;
                    out.flush().map_err(anyhow::Error::from)?;
                }
            }
        }
    }
    spinner.clear();
    sheet.end()?;
    out.flush().map_err(anyhow::Error::from)?;
    Ok(())
}

/// Writes what is there already.
pub(crate) fn show(manner: &Manner, schema: &SchemaRef, batches: &[RecordBatch]) -> anyhow::Result<()> {
    let mut out = manner.out.clone();
    let mut sheet = manner.format.begin(out.clone(), schema, manner.width)?;
    batches.iter().try_for_each(|batch| sheet.batch(batch))?;
    sheet.end()?;
    Ok(out.flush()?)
}
