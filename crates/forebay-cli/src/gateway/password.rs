//! Asks for a password: without showing it, and never as an argument, where other users of the machine would see it.

use std::io::{self, BufRead as _, ErrorKind, IsTerminal as _, Read, Write as _};

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Longer passwords would not fit into the messages of all clients.
const LONGEST: usize = 900;

/// The password that a person types twice, or the first line of stdin.
pub(super) fn ask(user: &str) -> anyhow::Result<String> {
    let stdin = io::stdin();
    let password = if stdin.is_terminal() {
        let password = type_in(&format!("Password for {user}: "))?;
        if type_in("Again: ")? != password {
            bail!("the two passwords differ; nothing was changed");
        }
        password
    } else {
        let mut line = String::new();
        stdin
            .lock()
            .take(LONGEST as u64 * 4)
            .read_line(&mut line)
            .context("cannot read the password from stdin")?;
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        line
    };
    match password.len() {
        0 => bail!("the password is empty; type one, or give it as a line on stdin"),
        1..=LONGEST => Ok(password),
        _ => bail!("the password is longer than {LONGEST} bytes"),
    }
}

fn type_in(prompt: &str) -> anyhow::Result<String> {
    let mut stderr = io::stderr();
    let typed = {
        // First, as it drops what was typed before: nobody types ahead of the prompt.
        let _silence = Silence::begin()?;
        stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush())?;
        read_keys(&mut io::stdin().lock())
    };
    // The key that ended it was not shown.
    writeln!(stderr)?;
    typed.context("no password was typed; nothing was changed")
}

/// Reads keys up to Enter. Ctrl-C and Ctrl-D give up.
fn read_keys(keys: &mut impl Read) -> io::Result<String> {
    let mut typed: Vec<u8> = Vec::new();
    let mut key = [0];
    loop {
        if keys.read(&mut key)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match key[0] {
            b'\r' | b'\n' => return String::from_utf8(typed).map_err(|_| ErrorKind::InvalidData.into()),
            3 | 4 => return Err(ErrorKind::Interrupted.into()),
            8 | 0x7f => {
                // The last letter may have several bytes.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            // Ctrl-U: from the beginning.
            21 => typed.clear(),
            _ if typed.len() > LONGEST => {}
            byte => typed.push(byte),
        }
    }
}

/// The terminal shows nothing and passes every key on, until this is dropped. So Ctrl-C cannot end the program before that.
struct Silence(Termios);

impl Silence {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // If it fails, `reset` helps.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_edited_and_can_be_given_up() {
        let typed = |keys: &str| read_keys(&mut keys.as_bytes()).map_err(|error| error.kind());
        assert_eq!(typed("secret\rrest"), Ok("secret".to_owned()));
        assert_eq!(typed("secä\u{7f}r\u{8}ret\n"), Ok("secret".to_owned()));
        assert_eq!(typed("\u{7f}wrong\u{15}right\r"), Ok("right".to_owned()));
        assert_eq!(typed("sec\u{3}ret\r"), Err(ErrorKind::Interrupted));
        assert_eq!(typed("\u{4}"), Err(ErrorKind::Interrupted));
        assert_eq!(typed("sec"), Err(ErrorKind::UnexpectedEof));
    }
}
