//! `client_min_messages`: Aurora DSQL refuses to set it, and Rails, JDBC's tools and what pg_dump writes set it all the same.
//!
//! It is a setting of the virtual session. The server never hears of it: what it sends below the level is dropped here.

use super::VirtualSession;
use super::scan::Effect;
use super::settings::Settings;
use crate::protocol::{ErrorFields, ServerError, server, write};

/// The name of the setting.
pub(super) const NAME: &str = "client_min_messages";

/// Under this name, which no setting has, is what SET LOCAL said.
pub(super) const LOCAL: &str = "client_min_messages local";

/// What the server would have.
const DEFAULT: Level = Level::Notice;

/// From which severity on a client wants to hear. Errors it gets in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Debug5,
    Debug4,
    Debug3,
    Debug2,
    Debug1,
    Log,
    Info,
    Notice,
    Warning,
    Error,
}

impl Level {
    const ALL: [(Self, &'static str); 10] = [
        (Self::Debug5, "debug5"),
        (Self::Debug4, "debug4"),
        (Self::Debug3, "debug3"),
        (Self::Debug2, "debug2"),
        (Self::Debug1, "debug1"),
        (Self::Log, "log"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
    ];

    fn of(value: &str) -> Option<Self> {
        let value = if value.eq_ignore_ascii_case("debug") { "debug2" } else { value };
        Self::ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(value)).map(|&(level, _)| level)
    }

    fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("notice", |&(_, name)| name)
    }
}

/// Whether it can be a value of `client_min_messages`.
pub(crate) fn is_message_level(value: &str) -> bool {
    Level::of(value).is_some()
}

/// The value in the text behind SET: the last word of it.
fn value(text: &str) -> &str {
    text.rsplit([' ', '\t', '\r', '\n', '=']).next().unwrap_or_default().trim_matches(['\'', '"'])
}

/// What a SET of it fails with. None if it does not.
pub(super) fn refusal(effect: &Effect) -> Option<ServerError> {
    let text = match effect {
        Effect::Set { name, text } if &**name == NAME => text,
        Effect::SetMinMessagesLocal(text) => text,
        _ => return None,
    };
    let value = value(text);
    if is_message_level(value) {
        return None;
    }
    let error = ServerError::error("22023", format!("invalid value for parameter \"{NAME}\": \"{value}\""));
    Some(
        error.with_hint(
            "Available values: debug5, debug4, debug3, debug2, debug1, log, notice, warning, error.",
        ),
    )
}

fn level(settings: &Settings) -> Level {
    settings
        .get(LOCAL)
        .or_else(|| settings.get(NAME))
        .and_then(|assignment| Level::of(value(assignment.text())))
        .unwrap_or(DEFAULT)
}

/// The description of SHOW.
pub(super) fn description(to_client: &mut Vec<u8>) {
    write::frame(to_client, server::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&[0, 1]);
        out.extend_from_slice(NAME.as_bytes());
        out.extend_from_slice(&[0; 7]);
        out.extend_from_slice(&25_u32.to_be_bytes());
        out.extend_from_slice(&[0xff; 6]);
        out.extend_from_slice(&[0, 0]);
    });
}

impl VirtualSession {
    /// The answer to SHOW.
    pub(super) fn show_min_messages(&self, with_description: bool, to_client: &mut Vec<u8>) {
        if with_description {
            description(to_client);
        }
        let value = level(&self.settings).as_str().as_bytes();
        write::frame(to_client, server::DATA_ROW, |out| {
            out.extend_from_slice(&[0, 1, 0, 0, 0, u8::try_from(value.len()).unwrap_or(0)]);
            out.extend_from_slice(value);
        });
        write::command_complete(to_client, "SHOW");
    }

    /// Whether the client wants to hear of a notice with this severity.
    pub(super) fn wants_to_hear(&self, severity: &[u8]) -> bool {
        let level = level(&self.settings);
        match severity {
            b"WARNING" => level <= Level::Warning,
            b"NOTICE" => level <= Level::Notice,
            b"LOG" => level <= Level::Log,
            // A client asked for these by name, or always gets them.
            _ => true,
        }
    }

    /// The same of the body of a NoticeResponse.
    pub(super) fn wants_notice(&self, body: &[u8]) -> bool {
        self.wants_to_hear(ErrorFields::read(body).severity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::assignment::Assignment;

    #[test]
    fn the_value_is_read_in_every_spelling() {
        let settings = |text: &str| {
            let mut settings = Settings::default();
            settings.set(NAME, Assignment::Set(text.into()));
            level(&settings).as_str()
        };
        for (text, expected) in [
            ("client_min_messages TO warning", "warning"),
            ("client_min_messages='ERROR'", "error"),
            ("client_min_messages = \"log\"", "log"),
            ("client_min_messages TO debug", "debug2"),
        ] {
            assert_eq!(settings(text), expected, "{text}");
        }
        let set = |text: &str| Effect::Set { name: NAME.into(), text: text.into() };
        assert!(refusal(&set("client_min_messages TO panic")).is_some());
        assert!(refusal(&set("client_min_messages TO notice")).is_none());
        assert!(refusal(&Effect::Set { name: "a".into(), text: "a TO panic".into() }).is_none());
    }
}
