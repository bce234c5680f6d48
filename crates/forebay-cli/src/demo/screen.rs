//! The live view, at any size.

use std::time::Duration;

use anyhow::Context;
use forebay_sim::grouped;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph, Widget, Wrap};

use super::contender::{Contender, SIDES};
use super::contest::{Contest, Frame, Phase};
use super::incident::Incident;
use super::report;
use super::scenario::{self, CONNECTIONS, OPENS_PER_SECOND, millis};
use super::side::Snapshot;
use crate::output::wrap;
use crate::signals::{Ending, Requests};

/// How often the view is drawn, and how long a key may go unnoticed.
const REDRAW: Duration = Duration::from_millis(100);
/// A smaller terminal only has room for words.
const LEAST: (u16, u16) = (38, if SIDES > 2 { 18 } else { 12 });
/// On a narrower terminal, one side is above the other.
const WIDE: u16 = if SIDES > 2 { 78 } else { 70 };
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// The top of the chart, in multiples of the limit, for both sides. It cuts off higher bars; the title has
/// the peak.
const CHART_TOP: u64 = 3;

/// Shows the contest until it is over, or a key or a signal ends it. The terminal is also restored after an
/// error and after a panic.
pub(super) fn show(contest: &Contest, url: &str, requests: &Requests) -> anyhow::Result<Ending> {
    let ending = ratatui::try_init()
        .and_then(|mut terminal| watch(&mut terminal, contest, url, requests))
        .context("this terminal cannot show the live view; try --plain");
    ratatui::restore();
    ending
}

fn watch(
    terminal: &mut DefaultTerminal,
    contest: &Contest,
    url: &str,
    requests: &Requests,
) -> std::io::Result<Ending> {
    let mut history = History::default();
    loop {
        let frame = contest.frame();
        history.note(&frame);
        terminal.draw(|screen| render(&frame, &history, url, screen.area(), screen.buffer_mut()))?;
        if frame.phase == Phase::Over {
            return Ok(Ending::Complete);
        }
        if let Some(ending) = requests.asked() {
            return Ok(ending);
        }
        // Waits for a key, which paces the drawing, and then reads the keys that follow it.
        let mut wait = REDRAW;
        while event::poll(wait)? {
            if let Event::Key(key) = event::read()?
                && let Some(ending) = ended_by(key)
            {
                return Ok(ending);
            }
            wait = Duration::ZERO;
        }
    }
}

/// The terminal is in raw mode, so Ctrl-C is a key like others.
fn ended_by(key: KeyEvent) -> Option<Ending> {
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Ending::Interrupted),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Ending::Quit),
        _ => None,
    }
}

fn render(frame: &Frame, history: &History, url: &str, area: Rect, buffer: &mut Buffer) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        return render_words(frame, area, buffer);
    }
    let is_wide = area.width >= WIDE;
    let foot_height = if area.height < 24 || !is_wide { 0 } else { 3 };
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(foot_height),
    ];
    let [title, progress, news, sides, foot_area] = Layout::vertical(rows).areas(area);
    let page = if is_wide { format!("  live page: {url}") } else { String::new() };
    Line::from(vec!["forebay demo".bold(), page.into()]).render(title, buffer);
    Line::from("q ends").right_aligned().dim().render(title, buffer);
    gauge(frame).render(progress, buffer);
    headline(frame).render(news, buffer);
    Paragraph::new(scenario::line()).dim().wrap(Wrap { trim: true }).render(foot_area, buffer);
    let parts = [Constraint::Fill(1); SIDES];
    let parts = if is_wide { Layout::horizontal(parts) } else { Layout::vertical(parts) };
    let areas = parts.areas::<SIDES>(sides);
    let texts = std::array::from_fn::<_, SIDES, _>(|side| Text::of(side, frame, areas[side].width));
    // The charts of all sides begin and end in the same rows.
    let rows = |rows: fn(&Text) -> usize| texts.iter().map(rows).max().unwrap_or(0);
    let rows = [rows(|text| text.words.len()), rows(|text| text.settings.len())];
    for (side, (text, area)) in texts.into_iter().zip(areas).enumerate() {
        render_side(side, text, rows, frame, history, area, buffer);
    }
}

/// What happens now.
fn headline(frame: &Frame) -> Line<'static> {
    match (frame.phase, frame.period().incident) {
        (Phase::Filling, _) => Line::from("three instances on each side open their connections").dim(),
        _ if frame.is_too_busy() => {
            Line::from("this machine is too busy: what is shown says more about it than about the pools")
                .red()
        }
        (_, None) => Line::from("quiet: all is well").dim(),
        (_, Some(incident)) => {
            let number = format!("{} of {} ", report::number_of(incident), Incident::ALL.len());
            Line::from(vec![number.bold(), incident.sentence().yellow()])
        }
    }
}

/// The most important first.
fn render_words(frame: &Frame, area: Rect, buffer: &mut Buffer) {
    let side = |(contender, snapshot): (Contender, &Snapshot)| {
        let failed = format!("{} {} failed", contender.short_name(), grouped(snapshot.figures.total.failed));
        Line::from(if snapshot.figures.total.failed > 0 { failed.red() } else { failed.green() })
    };
    let mut lines: Vec<Line<'_>> = Contender::ALL.into_iter().zip(&frame.sides).map(side).collect();
    lines.extend([
        headline(frame),
        Line::from(format!("{} of {} s", frame.elapsed.as_secs(), frame.length.as_secs())),
        Line::from("q ends").dim(),
    ]);
    Paragraph::new(lines).render(area, buffer);
}

fn gauge(frame: &Frame) -> Gauge<'static> {
    let (ratio, label) = match frame.phase {
        Phase::Filling => {
            let open = frame.sides.iter().map(|side| side.sessions).min().unwrap_or(0);
            (0.0, format!("opening the first connections: {open} of {CONNECTIONS}"))
        }
        Phase::Running => {
            let left = frame.length.saturating_sub(frame.elapsed).as_secs() + 1;
            let ratio = frame.elapsed.as_secs_f64() / frame.length.as_secs_f64();
            (ratio.clamp(0.0, 1.0), format!("{left} s left of {} s", frame.length.as_secs()))
        }
        Phase::Finishing | Phase::Over => (1.0, "the last callers leave".to_owned()),
    };
    Gauge::default().ratio(ratio).label(label).gauge_style(Style::new().blue().on_dark_gray())
}

/// The text of a side, in lines that fit into its frame.
struct Text {
    words: Vec<Line<'static>>,
    settings: Vec<Line<'static>>,
}

impl Text {
    fn of(side: usize, frame: &Frame, width: u16) -> Self {
        // Without the border.
        let width = width.saturating_sub(2).max(1);
        let settings = Contender::ALL[side].settings().into_iter();
        let settings: String = settings.map(|(name, value)| format!("{name}: {value}\n")).collect();
        let settings = wrap(&settings, usize::from(width));
        Self {
            words: words(&frame.sides[side], width),
            settings: settings.lines().map(|line| Line::from(line.to_owned())).collect(),
        }
    }
}

/// Bars, figures, opens over time and settings, as far as there is room: the most important stay longest. `rows` are those of
/// the figures and of the settings.
fn render_side(
    side: usize,
    text: Text,
    rows: [usize; 2],
    frame: &Frame,
    history: &History,
    area: Rect,
    buffer: &mut Buffer,
) {
    let snapshot = &frame.sides[side];
    let border = Block::bordered().title(format!(" {} ", Contender::ALL[side].name()).bold());
    let inner = border.inner(area);
    border.render(area, buffer);
    let bars = [
        ("ready", snapshot.ready, Color::Green),
        ("lent", snapshot.figures.lent, Color::Blue),
        ("opening", snapshot.opening, Color::Yellow),
        ("waiting", snapshot.figures.waiting, Color::Red),
    ]
    .map(|(name, number, color)| bar(name, number, color, inner.width))
    .to_vec();
    let Text { words, settings } = text;
    let [bars_height, words_height, settings_height] =
        [bars.len(), rows[0], rows[1]].map(|rows| u16::try_from(rows).unwrap_or(u16::MAX));
    let mut left = inner.height.saturating_sub(words_height);
    let mut fit = |rows: u16, spare: u16| {
        let given = if left < rows + spare { 0 } else { rows };
        left -= given;
        Constraint::Length(given)
    };
    // A chart needs its title and three rows.
    let (bars_height, settings_height, title_height) =
        (fit(bars_height, 0), fit(settings_height, 4), fit(1, 3));
    let words_height = Constraint::Length(words_height);
    let heights = [bars_height, words_height, title_height, Constraint::Fill(1), settings_height];
    let [bars_area, words_area, title, chart, settings_area] = Layout::vertical(heights).areas(inner);
    Paragraph::new(bars).render(bars_area, buffer);
    Paragraph::new(words).render(words_area, buffer);
    Paragraph::new(settings).dim().render(settings_area, buffer);
    if title.height > 0 {
        let (now, peak) = (snapshot.traffic.attempts, snapshot.traffic.peak_attempts);
        let text = format!("opens a second {now}, peak {peak}, limit {OPENS_PER_SECOND}");
        let short = format!("opens/s {now}, peak {peak}");
        Line::from(if text.len() > usize::from(title.width) { short } else { text }).render(title, buffer);
        if snapshot.figures.total.failed > 0 && title.width > 46 {
            Line::from("× failed").right_aligned().red().render(title, buffer);
        }
        render_chart(&history.columns(side, frame.length, chart.width), chart, buffer);
    }
}

/// A name, a bar that is full at [`CONNECTIONS`], and the number, which may be higher.
fn bar(name: &str, number: usize, color: Color, width: u16) -> Line<'static> {
    let room = usize::from(width).saturating_sub(14);
    let filled = (number.min(CONNECTIONS) * room).div_ceil(CONNECTIONS);
    Line::from(vec![
        Span::raw(format!("{name:<8}")),
        Span::styled("█".repeat(filled), Style::new().fg(color)),
        Span::styled("·".repeat(room - filled), Style::new().dark_gray()),
        Span::raw(format!("{number:>5}")),
    ])
}

/// The figures, each group on a line of its own, or on more where it does not fit.
fn words(snapshot: &Snapshot, width: u16) -> Vec<Line<'static>> {
    let total = &snapshot.figures.total;
    let failed = format!("failed {}", grouped(total.failed));
    let failed = if total.failed > 0 { failed.red().bold() } else { failed.green().bold() };
    let slow = format!("slow {} of {}", grouped(total.slow), grouped(total.acquires));
    let [p50, p99, max] = [("p50", total.p50), ("p99", total.p99), ("max", total.max)].map(|(name, wait)| {
        Span::raw(format!("{name} {}", if total.acquires > 0 { millis(wait) } else { "-".to_owned() }))
    });
    let (opened, refused) = (grouped(snapshot.traffic.opened), grouped(snapshot.traffic.refused));
    [
        vec![failed, slow.into()],
        vec![p50, p99, max],
        vec![format!("opened {opened}").into(), format!("refused {refused}").into()],
    ]
    .into_iter()
    .flat_map(|group| packed(group, usize::from(width)))
    .collect()
}

/// The words on as few lines as they fit on, with two spaces between them, or one where that saves a line.
fn packed(words: Vec<Span<'static>>, width: usize) -> Vec<Line<'static>> {
    let lines = |space: &'static str| {
        let mut lines: Vec<Line<'static>> = Vec::new();
        for word in words.clone() {
            match lines.last_mut() {
                Some(line) if line.width() + space.len() + word.width() <= width => {
                    line.spans.extend([Span::raw(space), word]);
                }
                _ => lines.push(Line::from(word)),
            }
        }
        lines
    };
    let (wide, narrow) = (lines("  "), lines(" "));
    if narrow.len() < wide.len() { narrow } else { wide }
}

/// Opens a second over the whole run, a line at the server's limit, and a mark below the columns in which
/// callers failed.
fn render_chart(columns: &[Column], area: Rect, buffer: &mut Buffer) {
    let Some(rows) = usize::from(area.height).checked_sub(1).filter(|rows| *rows > 0) else { return };
    let limit = u64::from(OPENS_PER_SECOND);
    let full = u64::try_from(rows * 8).unwrap_or(u64::MAX);
    let height =
        |opens: u64| usize::try_from((opens * full).div_ceil(CHART_TOP * limit)).unwrap_or(usize::MAX);
    let limit_row = height(limit) / 8;
    for (column, x) in (area.left()..area.right()).enumerate() {
        let column = columns.get(column).copied().unwrap_or_default();
        let color = if column.opens > limit { Color::Red } else { Color::Green };
        for (row, y) in (area.top()..area.bottom() - 1).rev().enumerate() {
            let eighths = height(column.opens).saturating_sub(8 * row).min(8);
            if eighths > 0 {
                buffer[(x, y)].set_symbol(EIGHTHS[eighths]).set_fg(color);
            } else if row == limit_row {
                buffer[(x, y)].set_symbol("┄").set_fg(Color::Yellow);
            }
        }
        if column.failed > 0 {
            buffer[(x, area.bottom() - 1)].set_symbol("×").set_fg(Color::Red);
        }
    }
}

/// The frames seen while callers came, in the order of time.
#[derive(Debug, Default)]
struct History(Vec<(Duration, [Column; SIDES])>);

/// One column of a chart; also one sample, in which `failed` counts from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Column {
    /// The most opens a second.
    opens: u64,
    /// Callers that failed.
    failed: u64,
}

impl History {
    fn note(&mut self, frame: &Frame) {
        if frame.phase == Phase::Running {
            let sample =
                |side: &Snapshot| Column { opens: side.traffic.attempts, failed: side.figures.total.failed };
            self.0.push((frame.elapsed, frame.sides.each_ref().map(sample)));
        }
    }

    /// Downsamples a run of `length` to `width` columns, up to the last sample.
    fn columns(&self, side: usize, length: Duration, width: u16) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        let mut failed_before = 0;
        for (at, sides) in &self.0 {
            let Column { opens, failed } = sides[side];
            let column = at.as_nanos() * u128::from(width) / length.as_nanos().max(1);
            let column =
                usize::try_from(column).unwrap_or(usize::MAX).min(usize::from(width).saturating_sub(1));
            // A column without a sample is as the next sample.
            while columns.len() <= column {
                columns.push(Column { opens, failed: 0 });
            }
            columns[column].opens = columns[column].opens.max(opens);
            columns[column].failed += failed - failed_before;
            failed_before = failed;
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::demo::tests::frame;

    /// The screen as text, after a run.
    fn screen(width: u16, height: u16, mut frame: Frame) -> String {
        let mut history = History::default();
        let phase = std::mem::replace(&mut frame.phase, Phase::Running);
        for tenths in 0..200 {
            frame.elapsed = Duration::from_millis(100 * tenths);
            history.note(&frame);
        }
        frame.phase = phase;
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|screen| {
                render(&frame, &history, "http://127.0.0.1:9464/", screen.area(), screen.buffer_mut())
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let rows = (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>());
        rows.collect::<Vec<_>>().join("\n")
    }

    fn in_phase(phase: Phase) -> Frame {
        Frame { phase, ..frame() }
    }

    #[test]
    fn any_size_is_drawn_in_any_phase() {
        let widths =
            [(1, 1), (2, 9), (20, 5), (38, 12), (39, 80), (69, 13), (70, 12), (80, 24), (200, 60), (500, 3)];
        for phase in [Phase::Filling, Phase::Running, Phase::Finishing, Phase::Over] {
            for (width, height) in widths {
                assert!(!screen(width, height, in_phase(phase)).trim().is_empty(), "{width}x{height}");
            }
        }
    }

    #[test]
    fn a_usual_terminal_shows_it_all() {
        for (width, height) in [(80, 24), (200, 60)] {
            let text = screen(width, height, in_phase(Phase::Running));
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
                "max 1,002 ms",
                "s left of 40 s",
                "2 of 4 all sockets are cut",
                "http://127.0.0.1:9464/",
                "q ends",
                "25 opens a second",
                "sessions end after 90 s",
            ] {
                assert!(text.contains(word), "{width}x{height} lacks {word}:\n{text}");
            }
            // Three sides have no room for their settings on a small screen.
            if SIDES == 2 || height > 24 {
                assert!(text.contains("guard window") && text.contains("timeouts"), "{text}");
            }
        }
    }

    #[test]
    fn figures_take_as_few_lines_as_they_fit_on() {
        let mut snapshot = in_phase(Phase::Running).sides[0];
        snapshot.figures.total.p99 = Duration::from_millis(1_000);
        let lines = |width| words(&snapshot, width).iter().map(ToString::to_string).collect::<Vec<_>>();
        let half = [
            "failed 1,015  slow 1,015 of 8,968",
            "p50 0.11 ms p99 1,000 ms max 1,002 ms",
            "opened 60  refused 232",
        ];
        assert_eq!(lines(38), half, "one space where two would take another line");
        let third = [
            "failed 1,015",
            "slow 1,015 of 8,968",
            "p50 0.11 ms p99 1,000 ms",
            "max 1,002 ms",
            "opened 60  refused 232",
        ];
        assert_eq!(lines(24), third);
    }

    #[test]
    fn a_tiny_terminal_shows_the_most_important() {
        let text = screen(20, 5, in_phase(Phase::Running));
        assert!(text.contains("deadpool 1,015 fail") && text.contains("forebay 0 failed"), "{text}");
    }

    #[test]
    fn filling_says_how_far_it_is() {
        assert!(screen(80, 24, in_phase(Phase::Filling)).contains("opening the first connections: 20 of 60"));
    }

    #[cfg(feature = "sqlx")]
    #[test]
    fn the_readme_shows_this_screen() {
        use crate::demo::database::Traffic;
        use crate::demo::tally::{Figures, Waits};

        let micros = Duration::from_micros;
        let side = |[ready, lent, opening, waiting]: [usize; 4], total, traffic| Snapshot {
            ready,
            opening,
            sessions: 60,
            figures: Figures { lent, waiting, total, ..Figures::default() },
            traffic,
        };
        let waits = |acquires, slow, [p50, p99, max]: [u64; 3]| Waits {
            acquires,
            slow,
            p50: micros(p50),
            p99: micros(p99),
            max: micros(max),
            ..Waits::default()
        };
        let traffic = |[attempts, peak_attempts, opened, refused]: [u64; 4]| Traffic {
            attempts,
            peak_attempts,
            opened,
            refused,
        };
        let deadpool = side(
            [0, 50, 10, 312],
            waits(3_109, 2_013, [130_000, 831_000, 1_347_000]),
            traffic([322, 357, 109, 685]),
        );
        let sqlx = side(
            [0, 58, 2, 261],
            waits(3_160, 1_760, [26_800, 584_000, 1_005_000]),
            traffic([120, 142, 118, 223]),
        );
        let reservoir =
            side([2, 58, 0, 15], waits(3_406, 1_185, [1_690, 55_300, 81_500]), traffic([0, 30, 121, 0]));
        let text = screen(100, 30, Frame { sides: [deadpool, sqlx, reservoir], ..in_phase(Phase::Running) });
        let readme = include_str!("../../../../README.md");
        let shown: Vec<_> = readme.lines().filter(|line| line.starts_with(['┌', '│', '└'])).collect();
        assert_eq!(shown.len(), 11);
        assert!(text.contains(&shown[..10].join("\n")) && text.contains(shown[10]), "{text}");
    }

    #[test]
    fn q_escape_and_ctrl_c_end_the_demo() {
        let press = |code, modifiers| ended_by(KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Ending::Quit));
        assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE), Some(Ending::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Ending::Interrupted));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(press(KeyCode::Enter, KeyModifiers::NONE), None);
    }

    fn history(samples: &[(u64, u64, u64)]) -> History {
        let sample = |(at, opens, failed): &(u64, u64, u64)| {
            (Duration::from_secs(*at), [Column { opens: *opens, failed: *failed }; SIDES])
        };
        History(samples.iter().map(sample).collect())
    }

    #[test]
    fn a_column_has_the_most_opens_and_all_failures() {
        let history = history(&[(0, 1, 0), (1, 5, 2), (2, 3, 2), (5, 4, 7)]);
        let columns = history.columns(0, Duration::from_secs(12), 12);
        let read: Vec<_> = columns.iter().map(|column| (column.opens, column.failed)).collect();
        assert_eq!(read, [(1, 0), (5, 2), (3, 0), (4, 0), (4, 0), (4, 5)]);
        let columns = history.columns(0, Duration::from_secs(12), 4);
        assert_eq!(columns, [Column { opens: 5, failed: 2 }, Column { opens: 4, failed: 5 }]);
    }

    #[test]
    fn odd_lengths_are_no_trouble() {
        assert!(History::default().columns(0, Duration::ZERO, 0).is_empty());
        let history = history(&[(0, 1, 0), (100, 2, 1)]);
        assert_eq!(history.columns(0, Duration::from_secs(1), 1), [Column { opens: 2, failed: 1 }]);
        assert_eq!(history.columns(0, Duration::ZERO, 3).len(), 3);
    }

    #[test]
    fn bars_rise_above_the_limit_and_failures_are_marked() {
        let limit = u64::from(OPENS_PER_SECOND);
        let history = history(&[(0, limit, 0), (1, 30 * limit, 0), (2, limit + limit / 2, 4)]);
        let area = Rect::new(0, 0, 4, 7);
        let mut buffer = Buffer::empty(area);
        render_chart(&history.columns(0, Duration::from_secs(4), 4), area, &mut buffer);
        let row = |y| (0..4).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let rows: Vec<_> = (0..7).map(row).collect();
        assert_eq!(rows, [" █  ", " █  ", " █  ", "┄██┄", "███ ", "███ ", "  × "]);
        assert_eq!((buffer[(0, 5)].fg, buffer[(1, 5)].fg), (Color::Green, Color::Red));
    }

    #[test]
    fn without_room_no_chart_is_drawn() {
        for (width, height) in [(0, 0), (5, 1), (0, 5)] {
            let area = Rect::new(0, 0, width, height);
            let mut buffer = Buffer::empty(area);
            render_chart(&[], area, &mut buffer);
            assert!(buffer.content.iter().all(|cell| cell.symbol() == " "));
        }
    }
}
