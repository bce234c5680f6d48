//! What begins with a backslash: asked of the shell, not of the server.

use std::path::PathBuf;

use super::catalog::Question;
use super::format::Format;

/// A command of the shell's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Quit,
    /// What the server has.
    Ask(Question),
    /// On, off, or the other way.
    Timing(Option<bool>),
    /// Changes it, or tells it.
    Format(Option<Format>),
    Include(PathBuf),
    /// A new session.
    Connect,
}

/// Every command, its arguments and what it does, for the help and for completion.
pub(crate) const COMMANDS: &[(&str, &str, &str)] = &[
    ("\\d", "[TABLE]", "the columns of a table; without one, all tables"),
    ("\\dt", "", "all tables"),
    ("\\dn", "", "all schemas"),
    ("\\l", "", "all catalogs"),
    ("\\timing", "[on|off]", "tell how long each statement took"),
    ("\\format", "[table|csv|json|arrow]", "how results are written"),
    ("\\i", "FILE", "run the statements of a file"),
    ("\\c", "", "start over with a new session"),
    ("\\?", "", "this list"),
    ("\\q", "", "leave; Ctrl-D does it, too"),
];

impl Command {
    /// Reads a line without its backslash.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        // A semicolon out of habit is forgiven, but for names of files.
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let argument = rest.trim_end_matches(';').trim_end();
        match name.trim_end_matches(';') {
            "i" if rest.is_empty() => Err("\\i wants a file: \\i FILE".to_owned()),
            "i" => Ok(Self::Include(rest.into())),
            "d" if !argument.is_empty() => Ok(Self::Ask(Question::Columns(argument.to_owned()))),
            "timing" => match argument {
                "" => Ok(Self::Timing(None)),
                "on" => Ok(Self::Timing(Some(true))),
                "off" => Ok(Self::Timing(Some(false))),
                other => Err(format!("\\timing {other}: say on or off")),
            },
            "format" if argument.is_empty() => Ok(Self::Format(None)),
            "format" => match Format::named(argument) {
                Some(format) => Ok(Self::Format(Some(format))),
                None => Err(format!("\\format {argument}: say table, csv, json or arrow")),
            },
            _ if !argument.is_empty() => {
                Err(format!("\\{name} takes no argument like {argument:?}; \\? lists the commands"))
            }
            "d" | "dt" => Ok(Self::Ask(Question::Tables)),
            "dn" => Ok(Self::Ask(Question::Schemas)),
            "c" => Ok(Self::Connect),
            "l" => Ok(Self::Ask(Question::Catalogs)),
            "?" | "h" | "help" => Ok(Self::Help),
            "q" | "quit" => Ok(Self::Quit),
            _ => Err(format!("there is no command \\{name}; \\? lists those there are")),
        }
    }

    /// What beginners type, which is SQL nowhere.
    pub(crate) fn said_in_words(text: &str) -> Option<Self> {
        match text.trim().trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
            "help" => Some(Self::Help),
            "exit" | "quit" => Some(Self::Quit),
            _ => None,
        }
    }

    pub(crate) fn help() -> String {
        let mut help =
            String::from("Statements end with a semicolon. Ctrl-C cancels one, and clears a line.\n");
        for (name, arguments, meaning) in COMMANDS {
            let call = format!("{name} {arguments}");
            help += &format!("  {call:<32} {meaning}\n");
        }
        help
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_listed() {
        for (line, command) in [
            ("?", Command::Help),
            ("q;", Command::Quit),
            ("c", Command::Connect),
            ("l", Command::Ask(Question::Catalogs)),
            ("dn", Command::Ask(Question::Schemas)),
            ("d", Command::Ask(Question::Tables)),
            ("dt;", Command::Ask(Question::Tables)),
            ("d main.t ;", Command::Ask(Question::Columns("main.t".to_owned()))),
            ("d \"my table\"", Command::Ask(Question::Columns("\"my table\"".to_owned()))),
            ("timing", Command::Timing(None)),
            ("timing off", Command::Timing(Some(false))),
            ("format csv;", Command::Format(Some(Format::Csv))),
            ("format", Command::Format(None)),
            ("i  some file.sql", Command::Include("some file.sql".into())),
        ] {
            assert_eq!(Command::parse(line), Ok(command), "{line}");
        }
        for (name, ..) in COMMANDS {
            let is_known = !matches!(Command::parse(&name[1..]), Err(error) if error.contains("there is no"));
            assert!(is_known && Command::help().contains(name), "{name}");
        }
    }

    #[test]
    fn some_are_understood_in_words() {
        assert_eq!(Command::said_in_words("help"), Some(Command::Help));
        assert_eq!(Command::said_in_words(" QUIT;\n"), Some(Command::Quit));
        assert_eq!(Command::said_in_words("exit"), Some(Command::Quit));
        for sql in ["", "quit now", "SELECT 1", "helper"] {
            assert_eq!(Command::said_in_words(sql), None, "{sql}");
        }
    }

    #[test]
    fn what_is_no_command_says_what_would_be() {
        for (line, said) in [
            ("x", "no command \\x; \\? lists"),
            ("i", "wants a file"),
            ("timing maybe", "on or off"),
            ("format xml", "table, csv, json or arrow"),
            ("dt t", "takes no argument"),
        ] {
            let error = Command::parse(line).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
