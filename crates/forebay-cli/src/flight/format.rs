//! The formats of results.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use clap::ValueEnum;

use super::json::Json;
use super::table::{Layout, Table};
use super::values::Values;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people, which fits the terminal.
    Table,
    /// A line of names first; NULL is empty, an empty string is "".
    Csv,
    /// One object on one line for each row.
    Json,
    /// A stream of Arrow IPC, as the server sent it.
    Arrow,
}

impl Format {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::from_str(name, true).ok()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Arrow => "arrow",
        }
    }

    /// Begins a result with these columns.
    pub(crate) fn begin<'a>(
        self,
        mut out: impl Write + 'a,
        schema: &SchemaRef,
        layout: Layout,
    ) -> anyhow::Result<Box<dyn ResultWriter + 'a>> {
        Ok(match self {
            Self::Table => Box::new(Table::new(out, schema, layout)),
            Self::Csv => {
                names(&mut out, schema)?;
                Box::new(Csv(out))
            }
            Self::Json => Box::new(Json::new(out, schema)),
            Self::Arrow => Box::new(Arrow(StreamWriter::try_new(out, schema).map_err(arrow_error)?)),
        })
    }
}

/// A result that is being written.
pub(crate) trait ResultWriter {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()>;

    /// The server pauses: the writer shows what it holds back.
    fn pause(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()>;
}

/// Why a result cannot be written as text.
pub(super) fn text_error(error: ArrowError) -> anyhow::Error {
    error_with(error, "this result cannot be written as text; --format arrow writes it as the server sent it")
}

fn arrow_error(error: ArrowError) -> anyhow::Error {
    error_with(error, "this result cannot be written as Arrow IPC; try another --format")
}

/// Unwraps an I/O error, so that a closed pipe is not taken for another failure.
fn error_with(error: ArrowError, context: &'static str) -> anyhow::Error {
    match error {
        ArrowError::IoError(_, error) => error.into(),
        other => anyhow::Error::new(other).context(context),
    }
}

/// RFC 4180, with a line feed at the end of each line.
struct Csv<W>(W);

fn names(out: &mut impl Write, schema: &SchemaRef) -> io::Result<()> {
    // A statement that returns nothing is not an empty line.
    if schema.fields().is_empty() {
        return Ok(());
    }
    for (place, field) in schema.fields().iter().enumerate() {
        separate(out, place)?;
        field_of(out, field.name())?;
    }
    out.write_all(b"\n")
}

impl<W: Write> ResultWriter for Csv<W> {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let columns = Values::of(batch)?;
        for row in 0..batch.num_rows() {
            for (place, column) in columns.iter().enumerate() {
                separate(&mut self.0, place)?;
                if let Some(text) = column.text(row).map_err(text_error)? {
                    field_of(&mut self.0, &text)?;
                }
            }
            self.0.write_all(b"\n")?;
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

fn separate(out: &mut impl Write, place: usize) -> io::Result<()> {
    if place > 0 { out.write_all(b",") } else { Ok(()) }
}

fn field_of(out: &mut impl Write, text: &str) -> io::Result<()> {
    if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        out.write_all(text.as_bytes())
    }
}

struct Arrow<W: Write>(StreamWriter<W>);

impl<W: Write> ResultWriter for Arrow<W> {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        self.0.write(batch).map_err(arrow_error)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.0.finish().map_err(arrow_error)
    }
}

#[cfg(test)]
mod tests;
