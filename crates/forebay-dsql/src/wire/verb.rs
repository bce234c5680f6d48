//! What the statements of a text begin with.

/// Reads a text of SQL and notes whether one of its statements may commit. It knows comments; of strings it knows
/// nothing, and takes what looks like a COMMIT in one for a COMMIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verbs {
    place: Place,
    word: [u8; 6],
    length: usize,
    commits: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// In a name that comes before the text.
    Name,
    /// Before a statement.
    #[default]
    Blank,
    /// Behind what may begin a comment.
    Dash,
    Slash,
    /// In a comment to the end of the line.
    Line,
    /// In a comment so and so deep, behind this byte.
    Comment(u32, u8),
    /// In the first word.
    Word,
    /// Behind it.
    Rest,
}

impl Verbs {
    /// Of a text that a name comes before.
    pub(super) const fn behind_a_name() -> Self {
        Self { place: Place::Name, word: [0; 6], length: 0, commits: false }
    }

    pub(super) fn extend(&mut self, mut part: &[u8]) {
        while let [byte, rest @ ..] = part {
            part = rest;
            self.place = match (self.place, byte) {
                (Place::Name, 0) => Place::Blank,
                (Place::Name, _) => Place::Name,
                (Place::Blank, b'-') => Place::Dash,
                (Place::Blank, b'/') => Place::Slash,
                (Place::Blank | Place::Rest, b';') => Place::Blank,
                (Place::Blank, byte) if byte.is_ascii_whitespace() => Place::Blank,
                // Other words commit nothing.
                (Place::Blank, b'C' | b'c' | b'E' | b'e') => {
                    self.length = 0;
                    self.push(*byte)
                }
                (Place::Word, byte) if byte.is_ascii_alphanumeric() || *byte == b'_' => self.push(*byte),
                (Place::Word, byte) => {
                    self.commits |= self.is_commit();
                    if *byte == b';' { Place::Blank } else { Place::Rest }
                }
                (Place::Dash, b'-') => Place::Line,
                (Place::Line, b'\n' | b'\r') => Place::Blank,
                (Place::Line, _) => Place::Line,
                (Place::Slash, b'*') => Place::Comment(1, 0),
                (Place::Comment(1, b'*'), b'/') => Place::Blank,
                (Place::Comment(depth, b'*'), b'/') => Place::Comment(depth - 1, 0),
                (Place::Comment(depth, b'/'), b'*') => Place::Comment(depth.saturating_add(1), 0),
                (Place::Comment(depth, _), byte) => Place::Comment(depth, *byte),
                (Place::Blank | Place::Dash | Place::Slash | Place::Rest, _) => {
                    // Nothing matters here but the end of the statement.
                    let end = part.iter().position(|byte| *byte == b';').unwrap_or(part.len());
                    part = &part[end..];
                    Place::Rest
                }
            };
        }
    }

    /// Whether one of the statements may commit, now that the text has ended.
    pub(super) fn may_commit(&self) -> bool {
        self.commits || (self.place == Place::Word && self.is_commit())
    }

    fn push(&mut self, byte: u8) -> Place {
        if let Some(place) = self.word.get_mut(self.length) {
            *place = byte.to_ascii_uppercase();
        }
        self.length += 1;
        Place::Word
    }

    fn is_commit(&self) -> bool {
        match self.length {
            3 => self.word.starts_with(b"END"),
            6 => self.word == *b"COMMIT",
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_found_behind_whatever_may_come_before_them() {
        for (text, commits) in [
            ("COMMIT", true),
            ("commit;", true),
            ("END", true),
            ("end transaction", true),
            ("COMMIT WORK", true),
            (" \n\tCOMMIT", true),
            ("-- the end\nCOMMIT", true),
            ("/* the /* very */ end **/ COMMIT", true),
            (";; COMMIT", true),
            ("INSERT INTO t VALUES (1); COMMIT", true),
            ("INSERT INTO t VALUES (1); /* x */ Commit", true),
            ("", false),
            ("SELECT 1", false),
            ("COMMITS", false),
            ("commit_all", false),
            ("ENDING", false),
            ("-- COMMIT", false),
            ("/* COMMIT */ SELECT 1", false),
            ("SELECT commit FROM t", false),
            ("ROLLBACK", false),
            ("(COMMIT)", false),
        ] {
            // Frames come in any pieces, and end with a zero.
            let bytes = [text.as_bytes(), b"\0"].concat();
            for cut in 0..bytes.len() {
                let mut verbs = Verbs::default();
                verbs.extend(&bytes[..cut]);
                verbs.extend(&bytes[cut..]);
                assert_eq!(verbs.may_commit(), commits, "{text:?} cut at {cut}");
            }
        }
        let mut verbs = Verbs::behind_a_name();
        verbs.extend(b"s0\0COMMIT\0\0\0");
        assert!(verbs.may_commit());
    }
}
