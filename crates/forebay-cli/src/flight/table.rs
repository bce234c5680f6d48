//! Results as a table for people.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::format::{ResultWriter, text_error};
use super::values::Values;
use crate::output::wrap;
use crate::printable::printable;

/// How many rows decide the widths of the columns.
const SAMPLE: usize = 1_000;
/// No column of text is narrower than this: instead, the table leaves some out.
const NARROWEST: usize = 6;
/// Marks text that is cut off.
const MARK: &str = "…";

/// How a table is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    /// The terminal's width, if there is one.
    pub(crate) width: Option<usize>,
    /// Whether a value of several lines is written in several lines, as a query plan must be.
    pub(crate) keeps_lines: bool,
}

/// A table that fits the terminal. It cuts wide columns of text with a mark. If that is not enough, it leaves
/// out the last columns and says so. Without a terminal nothing is cut. A number is never cut, since its first
/// digits would look like another number.
pub(crate) struct Table<W> {
    out: W,
    columns: Vec<Column>,
    layout: Layout,
    /// The first rows, until the widths are decided.
    sample: Option<Vec<Vec<String>>>,
    /// How many columns are shown.
    shown: usize,
    rows: u64,
}

struct Column {
    name: String,
    is_number: bool,
    width: usize,
    /// The width of the widest value.
    content: usize,
}

impl Column {
    /// As wide as `cap`, or wider if it must be.
    fn narrowed(&self, cap: usize) -> usize {
        let least = if self.is_number { self.content } else { 0 };
        self.width.min(cap.max(least))
    }
}

impl<W: Write> Table<W> {
    pub(crate) fn new(out: W, schema: &SchemaRef, layout: Layout) -> Self {
        let columns = schema.fields().iter().map(|field| {
            let name = printable(field.name());
            Column { is_number: field.data_type().is_numeric(), width: name.width().max(1), content: 0, name }
        });
        let columns: Vec<Column> = columns.collect();
        Self { out, shown: columns.len(), columns, layout, sample: Some(Vec::new()), rows: 0 }
    }

    /// Decides the widths by the sample, and writes it.
    fn decide_widths(&mut self) -> io::Result<()> {
        let Some(sample) = self.sample.take() else { return Ok(()) };
        for row in &sample {
            for (column, cell) in self.columns.iter_mut().zip(row) {
                column.content = column.content.max(cell_width(cell));
                column.width = column.width.max(column.content);
            }
        }
        if let Some(width) = self.layout.width {
            self.fit(width);
        }
        if self.shown == 0 {
            return Ok(());
        }
        self.line("┌", "┬", "┐")?;
        let names: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        self.row(&names)?;
        self.line("├", "┼", "┤")?;
        sample.iter().try_for_each(|row| self.row(row))
    }

    /// Makes the widest columns narrower until all fit, or leaves out the last ones.
    fn fit(&mut self, width: usize) {
        let least =
            |columns: &[Column]| columns.iter().map(|column| column.narrowed(NARROWEST)).sum::<usize>();
        let all = self.columns.len();
        let fits = |shown: &usize| frame(*shown, all) + least(&self.columns[..*shown]) <= width;
        self.shown = (1..=all).rev().find(fits).unwrap_or(all.min(1));
        self.narrow(width);
    }

    /// Makes the widest of the shown columns narrower until they fit.
    fn narrow(&mut self, width: usize) {
        let room = width.saturating_sub(frame(self.shown, self.columns.len()));
        let columns = &mut self.columns[..self.shown];
        let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
        let cap = (1..=widest)
            .rev()
            .find(|cap| columns.iter().map(|column| column.narrowed(*cap)).sum::<usize>() <= room)
            .unwrap_or(NARROWEST);
        for column in columns {
            column.width = column.narrowed(cap);
        }
    }

    /// Makes room for numbers that are wider than those of the sample. The new widths begin below a line.
    fn widen(&mut self, cells: &[String]) -> io::Result<()> {
        let Some(width) = self.layout.width else { return Ok(()) };
        let mut is_wider = false;
        for (column, cell) in self.columns[..self.shown].iter_mut().zip(cells) {
            if column.is_number && cell.width() > column.width {
                (column.width, column.content, is_wider) = (cell.width(), cell.width(), true);
            }
        }
        if is_wider {
            self.narrow(width);
            self.line("├", "┼", "┤")?;
        }
        Ok(())
    }

    fn line(&mut self, left: &str, between: &str, right: &str) -> io::Result<()> {
        for (place, column) in self.columns[..self.shown].iter().enumerate() {
            let joint = if place == 0 { left } else { between };
            write!(self.out, "{joint}{}", "─".repeat(column.width + 2))?;
        }
        if self.shown < self.columns.len() {
            write!(self.out, "{between}───")?;
        }
        writeln!(self.out, "{right}")
    }

    fn row(&mut self, cells: &[String]) -> io::Result<()> {
        let height = cells[..self.shown].iter().map(|cell| cell.split('\n').count()).max().unwrap_or(0);
        (0..height).try_for_each(|line| self.line_of_row(cells, line))
    }

    fn line_of_row(&mut self, cells: &[String], line: usize) -> io::Result<()> {
        for (column, cell) in self.columns[..self.shown].iter().zip(cells) {
            let text = cell.split('\n').nth(line).unwrap_or_default();
            let text = if self.layout.width.is_some() { cut(text, column.width) } else { text.to_owned() };
            let blanks = " ".repeat(column.width.saturating_sub(text.width()));
            match column.is_number {
                true => write!(self.out, "│ {blanks}{text} ")?,
                false => write!(self.out, "│ {text}{blanks} ")?,
            }
        }
        if self.shown < self.columns.len() {
            write!(self.out, "│ {MARK} ")?;
        }
        writeln!(self.out, "│")
    }

    /// A value as it is written.
    fn cell(&self, text: &str) -> String {
        if !self.layout.keeps_lines {
            return printable(text);
        }
        let lines: Vec<String> = text.trim_end().lines().map(printable).collect();
        lines.join("\n")
    }
}

/// How much of the terminal's width the borders take: each column has one and two blanks, and there is one
/// more. A mark for omitted columns takes 4.
fn frame(shown: usize, all: usize) -> usize {
    shown * 3 + 1 + if shown < all { 4 } else { 0 }
}

fn cell_width(cell: &str) -> usize {
    cell.split('\n').map(UnicodeWidthStr::width).max().unwrap_or(0)
}

impl<W: Write> ResultWriter for Table<W> {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let columns = Values::of(batch)?;
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| {
                let text = column.text(row)?;
                Ok(text.map_or_else(|| "NULL".to_owned(), |text| self.cell(&text)))
            });
            let cells = cells.collect::<Result<Vec<_>, _>>().map_err(text_error)?;
            self.rows += 1;
            match &mut self.sample {
                Some(sample) => {
                    sample.push(cells);
                    if sample.len() >= SAMPLE {
                        self.decide_widths()?;
                    }
                }
                None => {
                    self.widen(&cells)?;
                    self.row(&cells)?;
                }
            }
        }
        Ok(())
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        // Without a row, the widths would be those of the names.
        if self.rows > 0 {
            self.decide_widths()?;
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.decide_widths()?;
        // A statement that returns nothing has no rows to count.
        if self.columns.is_empty() && self.rows == 0 {
            return Ok(());
        }
        if self.shown > 0 {
            self.line("└", "┴", "┘")?;
        }
        let plural = if self.rows == 1 { "" } else { "s" };
        let omitted = match self.columns.len() - self.shown {
            0 => String::new(),
            _ => format!(
                "; {} of {} columns: make the terminal wider, or use another \\format",
                self.shown,
                self.columns.len()
            ),
        };
        let foot = format!("({} row{plural}{omitted})", self.rows);
        writeln!(self.out, "{}", wrap(&foot, self.layout.width.unwrap_or(usize::MAX)))?;
        Ok(())
    }
}

/// As much of the text as fits, with a mark if that is not all.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(MARK.width());
    let mut cut = String::new();
    for cluster in text.graphemes(true) {
        let Some(left) = room.checked_sub(cluster.width()) else { break };
        room = left;
        cut += cluster;
    }
    cut + MARK
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use proptest::prelude::*;

    use super::*;

    fn strings(name: &str, values: &[&str]) -> (String, ArrayRef) {
        (name.to_owned(), Arc::new(StringArray::from(values.to_vec())))
    }

    fn drawn(columns: Vec<(String, ArrayRef)>, width: Option<usize>) -> String {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, &batch.schema(), Layout { width, keeps_lines: false });
        table.batch(&batch).unwrap();
        table.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_widest_columns_are_cut_with_a_mark() {
        let columns = vec![
            ("n".to_owned(), Arc::new(Int64Array::from(vec![7, 1_234])) as ArrayRef),
            strings("long", &["abcdefghijklmnopqrstuvwxyz", "x"]),
            strings("wide", &["日本語の列です", "🙂🙂🙂🙂🙂🙂🙂🙂"]),
        ];
        let expected = "\
┌──────┬────────────┬────────────┐
│    n │ long       │ wide       │
├──────┼────────────┼────────────┤
│    7 │ abcdefghi… │ 日本語の…  │
│ 1234 │ x          │ 🙂🙂🙂🙂…  │
└──────┴────────────┴────────────┘
(2 rows)
";
        let table = drawn(columns, Some(34));
        assert_eq!(table, expected, "\n{table}");
    }

    #[test]
    fn columns_that_cannot_fit_are_left_out_and_counted() {
        let columns = (0..9).map(|n| strings(&format!("column {n}"), &["some text"])).collect();
        let expected = "\
┌────────┬────────┬────────┬───┐
│ colum… │ colum… │ colum… │ … │
├────────┼────────┼────────┼───┤
│ some … │ some … │ some … │ … │
└────────┴────────┴────────┴───┘
(1 row; 3 of 9 columns: make the
terminal wider, or use another
\\format)
";
        let table = drawn(columns, Some(34));
        assert_eq!(table, expected, "\n{table}");
    }

    #[test]
    fn rows_after_the_sample_keep_to_its_widths() {
        let schema = RecordBatch::try_from_iter(vec![strings("a", &["x"])]).unwrap().schema();
        let rows =
            |text: &str, count| RecordBatch::try_from_iter(vec![strings("a", &vec![text; count])]).unwrap();
        for (width, last) in
            [(Some(80), "│ longer than the sam… │"), (None, "│ longer than the sample was │")]
        {
            let mut out = Vec::new();
            let mut table = Table::new(&mut out, &schema, Layout { width, keeps_lines: false });
            table.batch(&rows("twenty characters it", SAMPLE)).unwrap();
            table.batch(&rows("longer than the sample was", 1)).unwrap();
            table.end().unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(last), "{}", text.lines().last().unwrap_or_default());
        }
    }

    #[test]
    fn numbers_are_never_cut() {
        let numbers = |from: i64, to: i64| {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(from..=to));
            let texts: ArrayRef = Arc::new(StringArray::from(vec!["some text"; column.len()]));
            RecordBatch::try_from_iter(vec![("n", column), ("text", texts)]).unwrap()
        };
        for (width, last) in [
            // There is room for both.
            (Some(80), "├───────┼───────────┤\n│ 10000 │ some text │\n└───────┴───────────┘\n"),
            // The text gives way.
            (Some(18), "├───────┼────────┤\n│ 10000 │ some … │\n└───────┴────────┘\n"),
            (None, "│ 9999 │ some text │\n│ 10000 │ some text │\n└──────┴───────────┘\n"),
        ] {
            let mut out = Vec::new();
            let mut table =
                Table::new(&mut out, &numbers(0, 0).schema(), Layout { width, keeps_lines: false });
            for (from, to) in [(8_000, 9_999), (10_000, 10_000)] {
                table.batch(&numbers(from, to)).unwrap();
            }
            table.end().unwrap();
            let text = String::from_utf8(out).unwrap();
            let end = text.trim_end_matches("(2001 rows)\n");
            assert!(end.ends_with(last), "{}", &end[end.len() - 200..]);
            assert!(width.is_none_or(|width| text.lines().all(|line| line.width() <= width)), "{width:?}");
        }
        let columns = vec![
            ("a number".to_owned(), Arc::new(Int64Array::from(vec![1_234_567_890_123])) as ArrayRef),
            strings("long", &["abcdefghijklmnopqrstuvwxyz"]),
        ];
        let table = drawn(columns, Some(30));
        assert!(table.contains("│ 1234567890123 │ abcdefghi… │"), "{table}");
    }

    #[test]
    fn a_plan_keeps_its_lines_and_is_not_cut() {
        let plan = "┌──────────┐\n│   SCAN   │\n└──────────┘\n";
        let batch =
            RecordBatch::try_from_iter(vec![strings("key", &["physical_plan"]), strings("value", &[plan])])
                .unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, &batch.schema(), Layout { width: None, keeps_lines: true });
        table.batch(&batch).unwrap();
        table.end().unwrap();
        let expected = "\
┌───────────────┬──────────────┐
│ key           │ value        │
├───────────────┼──────────────┤
│ physical_plan │ ┌──────────┐ │
│               │ │   SCAN   │ │
│               │ └──────────┘ │
└───────────────┴──────────────┘
(1 row)
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_result_without_columns_has_no_rows_to_count() {
        assert_eq!(drawn_empty(0), "");
        assert_eq!(drawn_empty(2), "(2 rows)\n");
    }

    fn drawn_empty(rows: usize) -> String {
        let schema = Arc::new(arrow_schema::Schema::empty());
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), Vec::new(), &options).unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, &schema, Layout::default());
        table.batch(&batch).unwrap();
        table.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_pause_shows_the_sample() {
        let batch = RecordBatch::try_from_iter(vec![strings("a", &["first"])]).unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, &batch.schema(), Layout { width: Some(40), keeps_lines: false });
        table.pause().unwrap();
        table.batch(&batch).unwrap();
        table.pause().unwrap();
        drop(table);
        assert!(String::from_utf8(out).unwrap().ends_with("│ first │\n"));
    }

    #[test]
    fn no_cell_controls_the_terminal() {
        let table = drawn(vec![strings("\u{1b}]0;x\u{7}", &["\u{1b}[2J\r\n\u{9b}\u{202e}"])], None);
        let controls = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
        assert!(!table.contains(controls), "{table:?}");
        assert!(table.contains("␛[2J␍␊��"), "{table}");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(
            cells in prop::collection::vec("[a-z日🙂é\u{301}\n ]{0,30}", 1..12),
            width in 20_usize..120,
        ) {
            let columns = cells.iter().enumerate().map(|(n, cell)| strings(&format!("c{n}"), &[cell.as_str()]));
            let table = drawn(columns.collect(), Some(width));
            for line in table.lines() {
                prop_assert!(line.width() <= width, "{} > {width}:\n{table}", line.width());
            }
        }
    }
}
