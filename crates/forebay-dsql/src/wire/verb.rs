//! What the statements of a text begin with.

/// Reads a text of SQL and notes whether one of its statements may commit: a COMMIT, or whatever is sent while no
/// transaction is open. It knows comments; of strings it knows nothing, and takes what looks like a COMMIT in one for a
/// COMMIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verbs {
    place: Place,
    word: [u8; 8],
    length: usize,
    /// It ends with the first statement.
    is_single: bool,
    is_outside: bool,
    may_commit: bool,
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
    /// Behind all that matters.
    Over,
}

impl Verbs {
    /// Of a text that is sent inside of a transaction, or outside.
    pub(super) fn of(is_outside: bool) -> Self {
        Self { is_outside, ..Self::default() }
    }

    /// Of a statement to be prepared, inside of a transaction: a name comes before it, and no other one behind it.
    pub(super) fn behind_a_name() -> Self {
        Self { place: Place::Name, is_single: true, ..Self::default() }
    }

    pub(super) fn extend(&mut self, mut part: &[u8]) {
        while let [byte, rest @ ..] = part {
            part = rest;
            self.place = match (self.place, byte) {
                (Place::Over, _) => return,
                (Place::Name, 0) => Place::Blank,
                (Place::Name, _) => Place::Name,
                (Place::Word, byte) if byte.is_ascii_alphanumeric() || *byte == b'_' => self.push(*byte),
                (Place::Word, byte) => {
                    self.begins_with_a_word();
                    if *byte == b';' && !self.is_single { Place::Blank } else { self.behind_the_first_word() }
                }
                (_, 0) => Place::Over,
                (Place::Blank, b'-') => Place::Dash,
                (Place::Blank, b'/') => Place::Slash,
                (Place::Blank | Place::Rest, b';') => Place::Blank,
                (Place::Blank, byte) if byte.is_ascii_whitespace() => Place::Blank,
                // What others begin with is of no interest.
                (
                    Place::Blank,
                    b'A' | b'a' | b'B' | b'b' | b'C' | b'c' | b'E' | b'e' | b'R' | b'r' | b'S' | b's',
                ) => {
                    self.length = 0;
                    self.push(*byte)
                }
                (Place::Dash, b'-') => Place::Line,
                (Place::Line, b'\n' | b'\r') => Place::Blank,
                (Place::Line, _) => Place::Line,
                (Place::Slash, b'*') => Place::Comment(1, 0),
                (Place::Comment(1, b'*'), b'/') => Place::Blank,
                (Place::Comment(depth, b'*'), b'/') => Place::Comment(depth - 1, 0),
                (Place::Comment(depth, b'/'), b'*') => Place::Comment(depth.saturating_add(1), 0),
                (Place::Comment(depth, _), byte) => Place::Comment(depth, *byte),
                (Place::Rest, _) => {
                    // Nothing matters here but the end of the statement.
                    let end = part.iter().position(|byte| matches!(byte, b';' | 0)).unwrap_or(part.len());
                    part = &part[end..];
                    Place::Rest
                }
                (Place::Blank | Place::Dash | Place::Slash, _) => {
                    self.may_commit |= self.is_outside;
                    self.behind_the_first_word()
                }
            };
        }
    }

    /// Whether one of the statements may commit, now that the text has ended.
    pub(super) fn may_commit(&self) -> bool {
        self.may_commit
    }

    /// Whether what comes after the text is outside of a transaction.
    pub(super) fn is_outside(&self) -> bool {
        self.is_outside
    }

    fn push(&mut self, byte: u8) -> Place {
        if let Some(place) = self.word.get_mut(self.length) {
            *place = byte.to_ascii_uppercase();
        }
        self.length += 1;
        Place::Word
    }

    fn behind_the_first_word(&self) -> Place {
        if self.is_single { Place::Over } else { Place::Rest }
    }

    fn begins_with_a_word(&mut self) {
        match self.word.get(..self.length).unwrap_or_default() {
            b"COMMIT" | b"END" => {
                self.may_commit = true;
                self.is_outside = true;
            }
            b"ROLLBACK" | b"ABORT" => self.is_outside = true,
            b"BEGIN" | b"START" => self.is_outside = false,
            _ => self.may_commit |= self.is_outside,
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
        // What is prepared is one statement, and what follows it is none.
        for (text, commits) in [
            ("COMMIT", true),
            ("/* x */ end", true),
            ("SELECT '; commit'", false),
            ("INSERT INTO t VALUES ('; commit')", false),
        ] {
            let mut verbs = Verbs::behind_a_name();
            verbs.extend(format!("s0\0{text}\0\0\x01;COMMIT;").as_bytes());
            assert_eq!(verbs.may_commit(), commits, "{text:?}");
        }
    }

    #[test]
    fn outside_of_a_transaction_everything_commits() {
        for (outside, text, commits, outside_then) in [
            (false, "INSERT INTO t VALUES (1)", false, false),
            (true, "INSERT INTO t VALUES (1)", true, true),
            (true, "(SELECT f())", true, true),
            (true, "BEGIN", false, false),
            (true, "start transaction; INSERT INTO t VALUES (1)", false, false),
            (true, "ROLLBACK;", false, true),
            (true, " -- nothing", false, true),
            (true, "", false, true),
            (false, "ROLLBACK", false, true),
            (false, "abort work", false, true),
            (false, "ROLLBACK; BEGIN; INSERT INTO t VALUES (1)", false, false),
            (false, "ROLLBACK; INSERT INTO t VALUES (1); BEGIN", true, false),
            (false, "COMMIT", true, true),
            (false, "rollback_all()", false, false),
        ] {
            let mut verbs = Verbs::of(outside);
            verbs.extend(format!("{text}\0").as_bytes());
            assert_eq!((verbs.may_commit(), verbs.is_outside()), (commits, outside_then), "{text:?}");
        }
    }
}
