//! The shell on a pseudo-terminal: Ctrl-C cancels the statement, and nothing else.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::Effort;
use super::stop::{ENDLESS, add_goals, milliseconds, stand_still};
use crate::clock;
use crate::flight::server::Server;
use crate::race::Figures;
use crate::report::Report;
use crate::section::{progress, runtime};

const NAME: &str = "Ctrl-C in the shell";
const PROMPT: &str = "sql> ";
const CTRL_C: &[u8] = b"\x03";
/// How long each step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("Ctrl-C in the shell");
    let program = env::current_exe()?.with_file_name("forebay");
    let help = Command::new(&program).args(["flight", "sql", "--help"]).output();
    if !help.is_ok_and(|output| output.status.success()) {
        let note = format!(
            "THE SHELL WAS LEFT OUT: {} has no `flight sql`; run cargo build -p forebay-cli --features \
             flight, with --release here too",
            program.display()
        );
        eprintln!("{note}");
        report.note(note);
        return Ok(());
    }
    let server = Server::start()?;
    let runtime = runtime()?;
    let home = tempfile::tempdir()?;
    let mut terminal = Terminal::start(&program, &server.url(), home.path())?;
    terminal.until(PROMPT)?;
    let [mut freed, mut stopped, mut next] = [const { Vec::new() }; 3];
    for _ in 0..effort.rounds {
        let before = server.count("steps")?;
        terminal.enter(&format!("{ENDLESS};"))?;
        let begun = clock::nanos();
        while server.count("statements_running")? == 0 {
            ensure!(clock::nanos() < begun + clock::whole_nanos(STEP_TIMEOUT), "the shell sent no statement");
            clock::nap(Duration::from_millis(2));
        }
        clock::nap(Duration::from_millis(100));
        ensure!(server.count("steps")? > before, "the statement did nothing");
        let cancelled = clock::nanos();
        terminal.press(CTRL_C)?;
        terminal.until("Cancelled.")?;
        terminal.until(PROMPT)?;
        let free = clock::nanos();
        terminal.enter("SELECT 40 + 2;")?;
        terminal.until("42")?;
        let answered = clock::nanos();
        let still = runtime.block_on(stand_still(&server))?;
        terminal.until(PROMPT)?;
        freed.push(milliseconds(cancelled, free));
        stopped.push(milliseconds(cancelled, still));
        next.push(milliseconds(free, answered));
    }
    terminal.leave()?;
    add_goals(report, "until its caller is free", vec![Figures::of(NAME, freed)?], 100.0);
    add_goals(
        report,
        "until the server's step counter stands still",
        vec![Figures::of(NAME, stopped)?],
        1_000.0,
    );
    add_goals(report, "until the next statement is answered", vec![Figures::of(NAME, next)?], 100.0);
    Ok(())
}

/// A terminal with a shell in it.
struct Terminal {
    keyboard: File,
    /// What the shell has shown since the last `until`.
    screen: Arc<Mutex<String>>,
    shell: Child,
}

impl Terminal {
    fn start(program: &Path, url: &str, home: &Path) -> anyhow::Result<Self> {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&near)?;
        unlockpt(&near)?;
        let name = ptsname(&near, Vec::new())?;
        let far = PathBuf::from(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let far = OpenOptions::new().read(true).write(true).open(far)?;
        // The shell gets the terminal as its controlling terminal, so that Ctrl-C sends a signal.
        let shell = Command::new("setsid")
            .arg("--ctty")
            .arg(program)
            .args(["flight", "sql", url])
            .env("HOME", home)
            .env("XDG_STATE_HOME", home)
            .env("TERM", "xterm")
            .stdin(Stdio::from(far.try_clone()?))
            .stdout(Stdio::from(far.try_clone()?))
            .stderr(Stdio::from(far))
            .spawn()
            .context("setsid could not be run; it comes with util-linux")?;
        let mut near = File::from(near);
        let (keyboard, screen) = (near.try_clone()?, Arc::<Mutex<String>>::default());
        let shown = Arc::clone(&screen);
        std::thread::Builder::new().spawn(move || {
            let mut bytes = [0; 4096];
            // This fails when the shell has closed its terminal.
            while let Ok(count @ 1..) = near.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                shown.lock().push_str(&text);
            }
        })?;
        Ok(Self { keyboard, screen, shell })
    }

    fn press(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        Ok(self.keyboard.write_all(keys)?)
    }

    fn enter(&mut self, line: &str) -> anyhow::Result<()> {
        self.press(format!("{line}\r").as_bytes())
    }

    /// Waits until the shell shows `text`, and removes everything up to there.
    fn until(&self, text: &str) -> anyhow::Result<()> {
        let begun = clock::nanos();
        loop {
            let mut screen = self.screen.lock();
            if let Some(at) = screen.find(text) {
                screen.drain(..at + text.len());
                return Ok(());
            }
            ensure!(
                clock::nanos() < begun + clock::whole_nanos(STEP_TIMEOUT),
                "the shell does not show {text:?} but {screen:?}"
            );
            drop(screen);
            clock::nap(Duration::from_millis(1));
        }
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.enter("\\q")?;
        let begun = clock::nanos();
        while self.shell.try_wait()?.is_none() {
            ensure!(clock::nanos() < begun + clock::whole_nanos(STEP_TIMEOUT), "the shell does not exit");
            clock::nap(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let (Ok(()) | Err(_)) = self.shell.kill();
        drop(self.shell.wait());
    }
}
