//! The commands of the shell, which begin with a backslash.

use std::path::PathBuf;

use super::catalog::Listing;
use super::format::Format;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Quit,
    /// Lists what the server has.
    List(Listing),
    /// On, off, or toggle.
    Timing(Option<bool>),
    /// Changes the format, or shows it.
    Format(Option<Format>),
    Include(PathBuf),
    /// Opens a new session.
    Connect,
}

/// Every command, its arguments and what it does, for the help and for completion.
pub(crate) const COMMANDS: &[(&str, &str, &str)] = &[
    ("\\d", "[TABLE]", "list the columns of a table, or all tables"),
    ("\\dt", "", "list the tables"),
    ("\\dn", "", "list the schemas"),
    ("\\l", "", "list the catalogs"),
    ("\\timing", "[on|off]", "show how long each statement took"),
    ("\\format", "[table|csv|json|arrow]", "set the format of results, or show it"),
    ("\\i", "FILE", "run the statements of a file"),
    ("\\c", "", "open a new session"),
    ("\\?", "", "show this list"),
    ("\\q", "", "leave; so does Ctrl-D"),
];

impl Command {
    /// Parses a line without its backslash.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        // A semicolon at the end is ignored, except in file names.
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let argument = rest.trim_end_matches(';').trim_end();
        match name.trim_end_matches(';') {
            "i" if rest.is_empty() => Err("\\i needs a file: \\i FILE".to_owned()),
            "i" => Ok(Self::Include(rest.into())),
            "d" if !argument.is_empty() => Ok(Self::List(Listing::Columns(argument.to_owned()))),
            "timing" => match argument {
                "" => Ok(Self::Timing(None)),
                "on" => Ok(Self::Timing(Some(true))),
                "off" => Ok(Self::Timing(Some(false))),
                other => Err(format!("\\timing {other}: write on or off")),
            },
            "format" if argument.is_empty() => Ok(Self::Format(None)),
            "format" => match Format::named(argument) {
                Some(format) => Ok(Self::Format(Some(format))),
                None => Err(format!("\\format {argument}: write table, csv, json or arrow")),
            },
            _ if !argument.is_empty() => Err(format!("\\{name} takes no argument; \\? lists the commands")),
            "d" | "dt" => Ok(Self::List(Listing::Tables)),
            "dn" => Ok(Self::List(Listing::Schemas)),
            "c" => Ok(Self::Connect),
            "l" => Ok(Self::List(Listing::Catalogs)),
            "?" | "h" | "help" => Ok(Self::Help),
            "q" | "quit" => Ok(Self::Quit),
            _ => Err(format!("there is no command \\{name}; \\? lists the commands")),
        }
    }

    /// Words that beginners type. They are not SQL in any dialect.
    pub(crate) fn from_words(text: &str) -> Option<Self> {
        match text.trim().trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
            "help" => Some(Self::Help),
            "exit" | "quit" => Some(Self::Quit),
            _ => None,
        }
    }

    pub(crate) fn help() -> String {
        let mut help =
            String::from("A statement ends with a semicolon. Ctrl-C cancels it, or clears the line.\n");
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
    fn each_listed_command_is_parsed() {
        for (line, command) in [
            ("?", Command::Help),
            ("q;", Command::Quit),
            ("c", Command::Connect),
            ("l", Command::List(Listing::Catalogs)),
            ("dn", Command::List(Listing::Schemas)),
            ("d", Command::List(Listing::Tables)),
            ("dt;", Command::List(Listing::Tables)),
            ("d main.t ;", Command::List(Listing::Columns("main.t".to_owned()))),
            ("d \"my table\"", Command::List(Listing::Columns("\"my table\"".to_owned()))),
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
        assert!(Command::help().lines().all(|line| line.chars().count() <= 80), "{}", Command::help());
    }

    #[test]
    fn some_commands_are_plain_words() {
        assert_eq!(Command::from_words("help"), Some(Command::Help));
        assert_eq!(Command::from_words(" QUIT;\n"), Some(Command::Quit));
        assert_eq!(Command::from_words("exit"), Some(Command::Quit));
        for sql in ["", "quit now", "SELECT 1", "helper"] {
            assert_eq!(Command::from_words(sql), None, "{sql}");
        }
    }

    #[test]
    fn an_unknown_command_is_an_error_with_a_remedy() {
        for (line, said) in [
            ("x", "no command \\x; \\? lists"),
            ("i", "needs a file"),
            ("timing maybe", "on or off"),
            ("format xml", "table, csv, json or arrow"),
            ("dt t", "takes no argument"),
        ] {
            let error = Command::parse(line).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
