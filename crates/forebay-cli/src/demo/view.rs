//! What the live view shows, at any size.

mod history;
mod pane;
mod strip;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Paragraph, Widget, Wrap};

use self::history::History;
use self::pane::Pane;
use super::Run;
use super::contest::{Frame, Phase};
use super::pooled::{self, Pooled};
use super::reserved::{self, Reserved};
use super::settings::Settings;
use super::side::Figures;
use super::wording::count;

/// Smaller than this, there is only room for words.
const LEAST: (u16, u16) = (38, 12);
/// Narrower than this, the sides stand one above the other.
const WIDE: u16 = 70;

/// The live view, and what it has seen.
#[derive(Debug)]
pub(super) struct View {
    run: Run,
    pooled: Seen,
    reserved: Seen,
}

/// What has been seen of one side.
#[derive(Debug)]
struct Seen {
    name: &'static str,
    history: History,
    settings: Settings,
}

impl View {
    pub(super) fn new(run: Run) -> Self {
        let seen = |name, settings| Seen { name, history: History::default(), settings };
        Self {
            run,
            pooled: seen(pooled::NAME, Pooled::settings(&run.scenario)),
            reserved: seen(reserved::NAME, Reserved::settings(&run.scenario)),
        }
    }

    /// Remembers a frame, for what is drawn over time.
    pub(super) fn note(&mut self, frame: &Frame) {
        if frame.phase == Phase::Running {
            self.pooled.history.note(frame.elapsed, &frame.pooled);
            self.reserved.history.note(frame.elapsed, &frame.reserved);
        }
    }

    /// Rng everything.
    pub(super) fn render(&self, frame: &Frame, area: Rect, buffer: &mut Buffer) {
        let (width, height) = LEAST;
        if area.width < width || area.height < height {
            return self.render_words(frame, area, buffer);
        }
        let terms = Paragraph::new(self.run.scenario.line()).dim().wrap(Wrap { trim: true });
        let terms_height = if area.height < 20 { 0 } else { 2 };
        let rows = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(terms_height),
        ];
        let [title, progress, sides, foot] = Layout::vertical(rows).areas(area);
        let subtitle =
            if area.width < WIDE { "" } else { "  the same callers, two ways to keep connections" };
        Line::from(vec!["forebay demo".bold(), subtitle.into()]).render(title, buffer);
        Line::from("q ends").right_aligned().dim().render(title, buffer);
        self.progress(frame).render(progress, buffer);
        terms.render(foot, buffer);
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [one, other] = if area.width < WIDE {
            Layout::vertical(halves).areas(sides)
        } else {
            Layout::horizontal(halves).areas(sides)
        };
        self.pane(&self.pooled, &frame.pooled).render(one, buffer);
        self.pane(&self.reserved, &frame.reserved).render(other, buffer);
    }

    fn pane<'a>(&'a self, seen: &'a Seen, figures: &'a Figures) -> Pane<'a> {
        Pane { run: &self.run, name: seen.name, history: &seen.history, settings: &seen.settings, figures }
    }

    fn progress(&self, frame: &Frame) -> Gauge<'static> {
        let length = self.run.length;
        let (ratio, label) = match frame.phase {
            Phase::Filling => {
                let open = frame.pooled.ready.min(frame.reserved.ready);
                (0.0, format!("opening the first connections: {open} of {}", self.run.scenario.connections))
            }
            Phase::Running => {
                let left = length.saturating_sub(frame.elapsed).as_secs() + 1;
                let ratio = frame.elapsed.as_secs_f64() / length.as_secs_f64();
                (ratio.clamp(0.0, 1.0), format!("{left} s left of {} s", length.as_secs()))
            }
            Phase::Finishing | Phase::Over => (1.0, "the last callers leave".to_owned()),
        };
        Gauge::default().ratio(ratio).label(label).gauge_style(Style::new().blue().on_dark_gray())
    }

    /// What matters most, first.
    fn render_words(&self, frame: &Frame, area: Rect, buffer: &mut Buffer) {
        let side = |name: &str, figures: &Figures| {
            let failed = format!("{name} {} failed", count(figures.callers.failed));
            Line::from(if figures.callers.failed > 0 { failed.red() } else { failed.green() })
        };
        let (elapsed, length) = (frame.elapsed.as_secs(), self.run.length.as_secs());
        let lines = vec![
            side("deadpool", &frame.pooled),
            side("forebay", &frame.reserved),
            Line::from(format!("{elapsed} of {length} s")),
            Line::from("q ends").dim(),
        ];
        Paragraph::new(lines).render(area, buffer);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::demo::tests::outcome;

    /// The screen as text, after a run.
    fn screen(width: u16, height: u16, phase: Phase) -> String {
        let outcome = outcome();
        let mut view = View::new(outcome.run);
        let mut frame = outcome.frame;
        frame.phase = Phase::Running;
        for tenths in 0..100 {
            frame.elapsed = Duration::from_millis(100 * tenths);
            view.note(&frame);
        }
        frame.phase = phase;
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|screen| view.render(&frame, screen.area(), screen.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>());
        rows.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn any_size_is_drawn_in_any_phase() {
        for phase in [Phase::Filling, Phase::Running, Phase::Finishing, Phase::Over] {
            for (width, height) in [
                (1, 1),
                (2, 9),
                (20, 5),
                (38, 12),
                (39, 80),
                (69, 13),
                (70, 12),
                (80, 24),
                (200, 60),
                (500, 3),
            ] {
                assert!(!screen(width, height, phase).trim().is_empty(), "{width}x{height}");
            }
        }
    }

    #[test]
    fn a_usual_terminal_shows_it_all() {
        for (width, height) in [(80, 24), (200, 60)] {
            let text = screen(width, height, Phase::Running);
            for word in [
                "deadpool 0.13",
                "forebay",
                "ready",
                "lent",
                "opening",
                "waiting",
                "failed 1,015",
                "failed 0",
                "p99",
                "limit 25",
                "s left of 30 s",
                "q ends",
                "sessions end after 8 s",
                "guard window",
                "timeouts",
            ] {
                assert!(text.contains(word), "{width}x{height} lacks {word}:\n{text}");
            }
        }
    }

    #[test]
    fn a_tiny_terminal_shows_what_matters_most() {
        let text = screen(20, 5, Phase::Running);
        assert!(text.contains("deadpool 1,015 fail") && text.contains("forebay 0 failed"), "{text}");
    }

    #[test]
    fn filling_says_how_far_it_is() {
        assert!(screen(80, 24, Phase::Filling).contains("opening the first connections: 20 of 60"));
    }
}
