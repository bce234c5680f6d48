//! Opens a second over the whole run, against the line of what the server allows.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::widgets::Widget;

use super::history::History;

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// The top of the strip, in multiples of the limit. Both sides have the same, and what goes beyond it is cut off: the
/// peak is told in words.
const TOP: usize = 3;

/// A bar for each part of the run, and a mark below those in which callers failed.
#[derive(Debug)]
pub(super) struct Strip<'a> {
    pub(super) history: &'a History,
    pub(super) length: Duration,
    pub(super) limit: usize,
}

impl Widget for Strip<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let Some(rows) = usize::from(area.height).checked_sub(1).filter(|rows| *rows > 0) else { return };
        let height = |opens: usize| (opens * rows * 8).div_ceil(TOP * self.limit.max(1));
        let limit_row = height(self.limit) / 8;
        let stretches = self.history.stretches(self.length, area.width);
        for (column, x) in (area.left()..area.right()).enumerate() {
            let stretch = stretches.get(column).copied().unwrap_or_default();
            let color = if stretch.opens > self.limit { Color::Red } else { Color::Green };
            for (row, y) in (area.top()..area.bottom() - 1).rev().enumerate() {
                let eighths = height(stretch.opens).saturating_sub(8 * row).min(8);
                if eighths > 0 {
                    buffer[(x, y)].set_symbol(EIGHTHS[eighths]).set_fg(color);
                } else if row == limit_row {
                    buffer[(x, y)].set_symbol("┄").set_fg(Color::Yellow);
                }
            }
            if stretch.failed > 0 {
                buffer[(x, area.bottom() - 1)].set_symbol("×").set_fg(Color::Red);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::backend::Traffic;
    use crate::demo::side::Figures;

    fn noted(history: &mut History, second: u64, opens: usize, failed: u64) {
        let mut figures =
            Figures { traffic: Traffic { attempts: opens, ..Traffic::default() }, ..Figures::default() };
        figures.callers.failed = failed;
        history.note(Duration::from_secs(second), &figures);
    }

    #[test]
    fn bars_rise_above_the_limit_and_failures_are_marked() {
        let mut history = History::default();
        noted(&mut history, 0, 10, 0);
        noted(&mut history, 1, 300, 0);
        noted(&mut history, 2, 15, 4);
        let area = Rect::new(0, 0, 4, 7);
        let mut buffer = Buffer::empty(area);
        Strip { history: &history, length: Duration::from_secs(4), limit: 10 }.render(area, &mut buffer);
        let row = |y| (0..4).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let rows: Vec<_> = (0..7).map(row).collect();
        assert_eq!(rows, [" █  ", " █  ", " █  ", "┄██┄", "███ ", "███ ", "  × "]);
        assert_eq!((buffer[(0, 5)].fg, buffer[(1, 5)].fg), (Color::Green, Color::Red));
    }

    #[test]
    fn without_room_nothing_is_drawn() {
        for (width, height) in [(0, 0), (5, 1), (0, 5)] {
            let area = Rect::new(0, 0, width, height);
            let mut buffer = Buffer::empty(area);
            Strip { history: &History::default(), length: Duration::ZERO, limit: 0 }
                .render(area, &mut buffer);
            assert!(buffer.content.iter().all(|cell| cell.symbol() == " "));
        }
    }
}
