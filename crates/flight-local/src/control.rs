//! Commands that inject faults into a running server, over its own port.

use std::str::FromStr;
use std::time::Duration;

use tokio::sync::oneshot;
use tonic::Status;

use crate::listener::Reboot;
use crate::shared::Shared;

/// The action that carries a command, if [`Config::control`](crate::Config::control) allows it.
pub(crate) const TELL: &str = "flight-local.tell";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Slow(Duration),
    Hang(u32),
    Reset(u32),
    ResetAfter(u32),
    Internal(u32),
    Refuse(Duration),
    Reboot(Duration),
    Replace,
    Counters,
}

const FORMS: &str = "slow TIME, hang N, reset N, reset-after N, internal N, refuse TIME, reboot TIME, replace-sessions, counters";

impl FromStr for Command {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |text: &str| text.parse().map_err(|_| format!("{text} is not a number of statements"));
        let time =
            |text: &str| time(text).ok_or_else(|| format!("{text} is not a time; write 250ms, 5s or 1m"));
        match words[..] {
            ["slow", text] => Ok(Self::Slow(time(text)?)),
            ["hang", text] => Ok(Self::Hang(number(text)?)),
            ["reset", text] => Ok(Self::Reset(number(text)?)),
            ["reset-after", text] => Ok(Self::ResetAfter(number(text)?)),
            ["internal", text] => Ok(Self::Internal(number(text)?)),
            ["refuse", text] => Ok(Self::Refuse(time(text)?)),
            ["reboot", text] => Ok(Self::Reboot(time(text)?)),
            ["replace-sessions"] => Ok(Self::Replace),
            ["counters"] => Ok(Self::Counters),
            _ => Err(format!("there is no such command; there are: {FORMS}")),
        }
    }
}

fn time(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(3_600)?)),
        "" if number == 0 => Some(Duration::ZERO),
        _ => None,
    }
}

/// Runs a command that came over a connection. Returns the answer.
pub(crate) fn execute(shared: &Shared, client: u64, body: &[u8]) -> Result<String, Status> {
    let text = str::from_utf8(body).map_err(|_| Status::invalid_argument("a command is text"))?;
    let faults = &shared.faults;
    match text.parse().map_err(Status::invalid_argument)? {
        Command::Slow(time) => faults.slow(time),
        Command::Hang(n) => faults.hang_next(n),
        Command::Reset(n) => faults.reset_next(n),
        Command::ResetAfter(n) => faults.reset_after_next(n),
        Command::Internal(n) => faults.internal_next(n),
        // For a limited time: nobody could connect to end it.
        Command::Refuse(time) => faults.refuse_connections_for(time),
        Command::Reboot(down) => {
            let (done, _) = oneshot::channel();
            let reboot = Reboot { down, keep_open: Some(client), done };
            shared.reboots.send(reboot).map_err(|_| Status::unavailable("the server has stopped"))?;
        }
        Command::Replace => {
            shared.sessions.end_all();
        }
        Command::Counters => return Ok(json(&shared.counters().named())),
    }
    Ok(String::new())
}

/// Names and numbers need no escaping.
fn json(named: &[(&str, u64)]) -> String {
    let fields: Vec<String> = named.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_or_refused_with_the_remedy() {
        assert_eq!("slow 250ms".parse(), Ok(Command::Slow(Duration::from_millis(250))));
        assert_eq!(" reboot  2m ".parse(), Ok(Command::Reboot(Duration::from_secs(120))));
        assert_eq!("slow 1h".parse(), Ok(Command::Slow(Duration::from_secs(3_600))));
        assert_eq!("slow 0".parse(), Ok(Command::Slow(Duration::ZERO)));
        assert_eq!("reset-after 3".parse(), Ok(Command::ResetAfter(3)));
        assert_eq!("replace-sessions".parse(), Ok(Command::Replace));
        assert_eq!("refuse 3s".parse(), Ok(Command::Refuse(Duration::from_secs(3))));
        for (text, word) in [
            ("dance", "hang N"),
            ("", "hang N"),
            ("hang many", "many"),
            ("slow 5", "5s"),
            ("slow ms", "250ms"),
            ("refuse on", "on is not a time"),
        ] {
            let error = text.parse::<Command>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn counters_are_an_object() {
        assert_eq!(json(&[("a", 1), ("b", 2)]), "{\"a\":1,\"b\":2}");
    }
}
