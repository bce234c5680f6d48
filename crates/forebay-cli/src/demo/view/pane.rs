//! One side of the live view.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Widget};

use super::history::History;
use super::strip::Strip;
use crate::demo::Run;
use crate::demo::settings::Settings;
use crate::demo::side::Figures;
use crate::demo::wording::{count, millis};

/// Bars, figures, opens over time and settings, as far as there is room: what matters most stays longest.
#[derive(Debug)]
pub(super) struct Pane<'a> {
    pub(super) run: &'a Run,
    pub(super) name: &'static str,
    pub(super) history: &'a History,
    pub(super) settings: &'a Settings,
    pub(super) figures: &'a Figures,
}

impl Widget for Pane<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let frame = Block::bordered().title(format!(" {} ", self.name).bold());
        let inner = frame.inner(area);
        frame.render(area, buffer);
        let verdict = self.verdict();
        let bars = self.bars(inner.width);
        let settings = self.settings();
        let (bars_height, verdict_height, settings_height) =
            (length(&bars), length(&verdict), length(&settings));
        let left = inner.height.saturating_sub(verdict_height);
        let bars_height = if left < bars_height { 0 } else { bars_height };
        let left = left - bars_height;
        // A strip needs its title and three rows to say anything.
        let settings_height = if left < settings_height + 4 { 0 } else { settings_height };
        let strip_height = if left - settings_height < 4 { 0 } else { 1 };
        let rows = [
            Constraint::Length(bars_height),
            Constraint::Length(verdict_height),
            Constraint::Length(strip_height),
            Constraint::Fill(1),
            Constraint::Length(settings_height),
        ];
        let [bars_area, verdict_area, title, strip, settings_area] = Layout::vertical(rows).areas(inner);
        Paragraph::new(bars).render(bars_area, buffer);
        Paragraph::new(verdict).render(verdict_area, buffer);
        Paragraph::new(settings).dim().render(settings_area, buffer);
        if strip_height > 0 {
            let limit = self.run.scenario.terms.opens_per_second;
            let traffic = &self.figures.traffic;
            let (now, peak) = (traffic.attempts, traffic.peak_attempts);
            Line::from(format!("opens a second {now}, peak {peak}, limit {limit}")).render(title, buffer);
            if self.figures.callers.failed > 0 && title.width > 46 {
                Line::from("× failed").right_aligned().red().render(title, buffer);
            }
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            Strip { history: self.history, length: self.run.length, limit }.render(strip, buffer);
        }
    }
}

impl Pane<'_> {
    fn bars(&self, width: u16) -> Vec<Line<'static>> {
        let Figures { ready, callers, traffic, .. } = self.figures;
        let connections = self.run.scenario.connections;
        [
            ("ready", *ready, Color::Green),
            ("lent", callers.served, Color::Blue),
            ("opening", traffic.opening, Color::Yellow),
            ("waiting", callers.waiting, Color::Red),
        ]
        .map(|(name, number, color)| bar(name, number, connections, color, width))
        .into()
    }

    /// What came of it so far.
    fn verdict(&self) -> Vec<Line<'static>> {
        let Figures { callers, waits, traffic, .. } = self.figures;
        let failed = format!("failed {}", count(callers.failed));
        let failed = if callers.failed > 0 { failed.red().bold() } else { failed.green().bold() };
        let wait = |wait| if callers.acquires > 0 { millis(wait) } else { "-".to_owned() };
        let slow = format!("   slow {} of {}", count(callers.slow), count(callers.acquires));
        vec![
            Line::from(vec![failed, slow.into()]),
            Line::from(format!("p50 {}  p99 {}  max {}", wait(waits.p50), wait(waits.p99), wait(waits.max))),
            Line::from(format!("opened {}   refused {}", count(traffic.opened), count(traffic.refused))),
        ]
    }

    fn settings(&self) -> Vec<Line<'static>> {
        self.settings.0.iter().map(|(name, value)| Line::from(format!("{name}: {value}"))).collect()
    }
}

/// A name, a bar of up to `full`, and the number itself, which may be more.
fn bar(name: &str, number: usize, full: usize, color: Color, width: u16) -> Line<'static> {
    let room = usize::from(width).saturating_sub(14);
    let filled = (number.min(full) * room).div_ceil(full.max(1));
    Line::from(vec![
        Span::raw(format!("{name:<8}")),
        Span::styled("█".repeat(filled), Style::new().fg(color)),
        Span::styled("·".repeat(room - filled), Style::new().dark_gray()),
        Span::raw(format!("{number:>5}")),
    ])
}

fn length(lines: &[Line<'_>]) -> u16 {
    u16::try_from(lines.len()).unwrap_or(u16::MAX)
}
