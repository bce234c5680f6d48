//! The command in a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::server::Server;

/// Longer than any wait on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
pub(crate) const UP: &str = "\u{1b}[A";

/// A terminal, and the shell in it.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// All output so far, and how much of it was checked.
    seen: String,
    looked: usize,
    child: Child,
}

impl Terminal {
    pub(crate) fn open(server: &Server, arguments: &[&str]) -> Self {
        Self::with(server, arguments, 80, &[])
    }

    /// A terminal of this width, with these variables.
    pub(crate) fn with(server: &Server, arguments: &[&str], width: u16, variables: &[(&str, &str)]) -> Self {
        let ours =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("its other side");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let size = Winsize { ws_row: 50, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("its size");
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
            .expect("it opens");
        let shell = server.command(arguments);
        // Ctrl-C goes to the session that the terminal controls, which must be a new one.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(shell.get_program()).args(shell.get_args());
        for (name, value) in shell.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.envs(variables.iter().copied());
        let copy = || Stdio::from(theirs.try_clone().expect("a copy"));
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("setsid starts");
        let (keyboard, screen) = (File::from(ours.try_clone().expect("a copy")), watch(ours));
        Self { keyboard, screen, seen: String::new(), looked: 0, child }
    }

    /// A shell that is ready.
    pub(crate) fn at_prompt(server: &Server) -> Self {
        let mut terminal = Self::open(server, &[]);
        terminal.prompt();
        terminal
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the shell is there");
    }

    /// Types a line.
    pub(crate) fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\r"));
    }

    /// Waits for this text, after the text of the last wait.
    pub(crate) fn expect(&mut self, text: &str) {
        let mut from = self.looked;
        loop {
            if let Some(at) = self.seen[from..].find(text) {
                self.looked = from + at + text.len();
                return;
            }
            // The text may have begun already, but no earlier than this.
            let begun = self.seen.floor_char_boundary(self.seen.len().saturating_sub(text.len()));
            from = from.max(begun);
            match self.screen.recv_timeout(PATIENCE) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("no {text:?} in:\n{}", &self.seen[self.looked..]),
            }
        }
    }

    /// Waits for the next prompt that reads keys. An escape code comes before it. A prompt is drawn more than
    /// once, and keys pressed in between are lost.
    pub(crate) fn prompt(&mut self) {
        self.prompt_with("sql> ");
    }

    /// Likewise, for the prompt that looks like this.
    pub(crate) fn prompt_with(&mut self, prompt: &str) {
        self.expect("\u{1b}[?2004h");
        self.expect(prompt);
    }

    /// Leaves at the next prompt. Keys pressed before it are lost.
    pub(crate) fn leave(&mut self) {
        self.prompt();
        self.press(CTRL_D);
        assert_eq!(self.end(), 0);
    }

    /// Waits for the end, and returns the exit status.
    pub(crate) fn end(&mut self) -> i32 {
        loop {
            match self.screen.recv_timeout(PATIENCE) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.seen),
            }
        }
        let status = self.child.wait().expect("it ends");
        status.code().unwrap_or_else(|| panic!("ended by signal {:?}:\n{}", status.signal(), self.seen))
    }

    pub(crate) fn seen(&self) -> &str {
        &self.seen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The output on the screen, until the shell ends.
#[allow(clippy::disallowed_methods, reason = "reading a terminal blocks")]
fn watch(terminal: OwnedFd) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut terminal = File::from(terminal);
        let mut buffer = [0; 4_096];
        while let Ok(count @ 1..) = terminal.read(&mut buffer) {
            if send.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receive
}
