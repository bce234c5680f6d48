//! The formats of results.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use clap::ValueEnum;

use super::json::Json;
use super::table::Table;

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

    /// Begins a result with these columns. `width` is the terminal's, if there is one.
    pub(crate) fn begin<'a>(
        self,
        mut out: impl Write + 'a,
        schema: &SchemaRef,
        width: Option<usize>,
    ) -> anyhow::Result<Box<dyn ResultWriter + 'a>> {
        Ok(match self {
            Self::Table => Box::new(Table::new(out, schema, width)),
            Self::Csv => {
                names(&mut out, schema)?;
                Box::new(Csv(out))
            }
            Self::Json => Box::new(Json::new(out, schema)),
            Self::Arrow => Box::new(Arrow(StreamWriter::try_new(out, schema).map_err(io_error)?)),
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

/// Formats the values of each column.
pub(super) fn formatters<'a>(
    batch: &'a RecordBatch,
    options: &'a FormatOptions<'a>,
) -> anyhow::Result<Vec<ArrayFormatter<'a>>> {
    let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), options));
    formatters.collect::<Result<_, _>>().map_err(io_error)
}

/// Unwraps an I/O error, so that a closed pipe is not taken for another failure.
pub(super) fn io_error(error: ArrowError) -> anyhow::Error {
    match error {
        ArrowError::IoError(_, error) => error.into(),
        other => {
            anyhow::Error::new(other).context("this result cannot be written in this format; try another")
        }
    }
}

/// RFC 4180, with a line feed at the end of each line.
struct Csv<W>(W);

fn names(out: &mut impl Write, schema: &SchemaRef) -> io::Result<()> {
    for (place, field) in schema.fields().iter().enumerate() {
        separate(out, place)?;
        field_of(out, field.name())?;
    }
    out.write_all(b"\n")
}

impl<W: Write> ResultWriter for Csv<W> {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let options = FormatOptions::default();
        let formatters = formatters(batch, &options)?;
        for row in 0..batch.num_rows() {
            for (place, (formatter, column)) in formatters.iter().zip(batch.columns()).enumerate() {
                separate(&mut self.0, place)?;
                if column.is_valid(row) {
                    let text = formatter.value(row).try_to_string().map_err(io_error)?;
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
        self.0.write(batch).map_err(io_error)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.0.finish().map_err(io_error)
    }
}

#[cfg(test)]
mod tests;
