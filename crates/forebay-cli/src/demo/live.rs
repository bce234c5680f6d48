//! The live view's terminal: taken over at the start, given back at the end.

use std::time::Duration;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::Run;
use super::contest::{Contest, Phase};
use super::view::View;
use crate::ending::{Ending, Requests};

/// How often the view is drawn, and how long a key may go unnoticed.
const REDRAW: Duration = Duration::from_millis(100);

/// Shows the contest until it is over or someone asks to end it. The terminal is restored on an error and on a
/// panic too.
pub(super) fn show(contest: &Contest, run: Run, requests: &Requests) -> anyhow::Result<Ending> {
    let ending = ratatui::try_init()
        .and_then(|mut terminal| watch(&mut terminal, contest, run, requests))
        .context("this terminal cannot show the live view; try --plain");
    ratatui::restore();
    ending
}

fn watch(
    terminal: &mut DefaultTerminal,
    contest: &Contest,
    run: Run,
    requests: &Requests,
) -> std::io::Result<Ending> {
    let mut view = View::new(run);
    loop {
        let frame = contest.frame();
        view.note(&frame);
        terminal.draw(|screen| view.render(&frame, screen.area(), screen.buffer_mut()))?;
        if frame.phase == Phase::Over {
            return Ok(Ending::Complete);
        }
        if let Some(ending) = requests.asked() {
            return Ok(ending);
        }
        // Waits for a key, which is what paces the drawing; then takes what else has come.
        let mut wait = REDRAW;
        while event::poll(wait)? {
            if let Event::Key(key) = event::read()?
                && let Some(ending) = asked_by(key)
            {
                return Ok(ending);
            }
            wait = Duration::ZERO;
        }
    }
}

/// What a key asks for. The terminal is in raw mode, so Ctrl-C is a key like others.
fn asked_by(key: KeyEvent) -> Option<Ending> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Ending::Interrupted),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Ending::Quit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_ctrl_c_end_the_demo() {
        let press = |code, modifiers| asked_by(KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Ending::Quit));
        assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE), Some(Ending::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Ending::Interrupted));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(press(KeyCode::Enter, KeyModifiers::NONE), None);
    }
}
