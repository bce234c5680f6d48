//! Results as a table for people.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_cast::display::FormatOptions;
use arrow_schema::SchemaRef;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::format::{ResultWriter, formatters};
use crate::output::wrap;

/// How many rows decide the widths of the columns.
const SAMPLE: usize = 1_000;
/// No column is narrower than this: instead, the table leaves some out.
const NARROWEST: usize = 6;
/// Marks text that is cut off.
const MARK: &str = "…";

/// A table that fits the terminal. It cuts wide columns with a mark. If that is not enough, it leaves out the
/// last columns and says so. Without a terminal nothing is cut.
pub(crate) struct Table<W> {
    out: W,
    columns: Vec<Column>,
    /// The terminal's width.
    width: Option<usize>,
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
}

impl<W: Write> Table<W> {
    pub(crate) fn new(out: W, schema: &SchemaRef, width: Option<usize>) -> Self {
        let columns = schema.fields().iter().map(|field| {
            let name = printable(field.name());
            Column { is_number: field.data_type().is_numeric(), width: name.width().max(1), name }
        });
        let columns: Vec<Column> = columns.collect();
        Self { out, shown: columns.len(), columns, width, sample: Some(Vec::new()), rows: 0 }
    }

    /// Decides the widths by the sample, and writes it.
    fn decide_widths(&mut self) -> io::Result<()> {
        let Some(sample) = self.sample.take() else { return Ok(()) };
        for row in &sample {
            for (column, cell) in self.columns.iter_mut().zip(row) {
                column.width = column.width.max(cell.width());
            }
        }
        if let Some(width) = self.width {
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
        // Each column has a border and two blanks; there is one more border. A mark for omitted columns takes
        // 4.
        let frame = |columns: usize| columns * 3 + 1;
        let narrow = |column: &Column, cap: usize| column.width.min(cap);
        let least =
            |columns: &[Column]| columns.iter().map(|column| narrow(column, NARROWEST)).sum::<usize>();
        let fits = |shown: usize, extra: usize| frame(shown) + extra + least(&self.columns[..shown]) <= width;
        let all = self.columns.len();
        let (shown, extra) =
            match (1..=all).rev().find(|shown| fits(*shown, if *shown < all { 4 } else { 0 })) {
                Some(shown) => (shown, if shown < all { 4 } else { 0 }),
                None => (all.min(1), if all > 1 { 4 } else { 0 }),
            };
        let room = width.saturating_sub(frame(shown) + extra);
        let columns = &mut self.columns[..shown];
        let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
        let cap = (1..=widest)
            .rev()
            .find(|cap| columns.iter().map(|column| narrow(column, *cap)).sum::<usize>() <= room)
            .unwrap_or(NARROWEST);
        for column in columns {
            column.width = narrow(column, cap);
        }
        self.shown = shown;
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
        let cuts = self.width.is_some();
        for (column, cell) in self.columns[..self.shown].iter().zip(cells) {
            let cell = if cuts { cut(cell, column.width) } else { cell.clone() };
            let blanks = " ".repeat(column.width.saturating_sub(cell.width()));
            match column.is_number {
                true => write!(self.out, "│ {blanks}{cell} ")?,
                false => write!(self.out, "│ {cell}{blanks} ")?,
            }
        }
        if self.shown < self.columns.len() {
            write!(self.out, "│ {MARK} ")?;
        }
        writeln!(self.out, "│")
    }
}

impl<W: Write> ResultWriter for Table<W> {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let options = FormatOptions::default().with_null("NULL").with_display_error(true);
        let formatters = formatters(batch, &options)?;
        for row in 0..batch.num_rows() {
            let cells =
                formatters.iter().map(|formatter| printable(&formatter.value(row).to_string())).collect();
            self.rows += 1;
            match &mut self.sample {
                Some(sample) => {
                    sample.push(cells);
                    if sample.len() >= SAMPLE {
                        self.decide_widths()?;
                    }
                }
                None => self.row(&cells)?,
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
        writeln!(self.out, "{}", wrap(&foot, self.width.unwrap_or(usize::MAX)))?;
        Ok(())
    }
}

/// Replaces characters that would control the terminal or reorder text: a server's data must not do that.
pub(crate) fn printable(text: &str) -> String {
    let visible = |letter: char| match letter {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(letter)).unwrap_or('�'),
        '\u{7f}' => '␡',
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => {
            '�'
        }
        other => other,
    };
    text.chars().map(visible).collect()
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
        let mut table = Table::new(&mut out, &batch.schema(), width);
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
            let mut table = Table::new(&mut out, &schema, width);
            table.batch(&rows("twenty characters it", SAMPLE)).unwrap();
            table.batch(&rows("longer than the sample was", 1)).unwrap();
            table.end().unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(last), "{}", text.lines().last().unwrap_or_default());
        }
    }

    #[test]
    fn a_pause_shows_the_sample() {
        let batch = RecordBatch::try_from_iter(vec![strings("a", &["first"])]).unwrap();
        let mut out = Vec::new();
        let mut table = Table::new(&mut out, &batch.schema(), Some(40));
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
