//! Cuts what the user writes into statements and commands, as it comes in.

use super::statement::{Statement, Words};

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Statement(Statement),
    /// A line that began with a backslash, without it.
    Command(String),
}

/// The end came inside of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} that begins in line {line} has no end; nothing of this statement was sent")]
pub(crate) struct Unfinished {
    what: &'static str,
    line: usize,
}

/// Reads one character after another, so that a statement of megabytes is looked at once, however it is cut up.
///
/// Strings, quoted names, comments and dollar quotes are passed over. Comments nest, as in PostgreSQL and DuckDB; a backslash
/// escapes only in a string with an E before it.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    text: String,
    place: Place,
    words: Words,
    /// Where the word that is being read begins.
    word: Option<usize>,
    /// The character before, as far as it may still be the first half of something.
    before: Option<char>,
    /// Whether the character before ended a string with an E before it: another quote goes on with it.
    has_left_escapes: bool,
    /// Whether there is more than blanks and comments.
    has_content: bool,
    line: usize,
    /// The line in which the statement began, comments aside.
    start: usize,
    /// The line in which the string, name or comment began.
    since: usize,
}

/// What the next character is part of.
#[derive(Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Open,
    Command,
    LineComment,
    BlockComment(usize),
    Quoted {
        quote: char,
        escapes: bool,
    },
    /// Between the dollars that may begin a dollar quote; where the first is.
    Tag(usize),
    /// In a dollar quote; its tag, and where its text begins.
    Dollar(String, usize),
}

impl Splitter {
    /// Takes more text, and gives what it completes.
    pub(crate) fn feed(&mut self, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for letter in text.chars() {
            pieces.extend(self.take(letter));
        }
        pieces
    }

    /// Takes the end of the text. What is left is a statement, semicolon or not.
    ///
    /// # Errors
    /// If it is one that cannot be complete.
    pub(crate) fn finish(&mut self) -> Result<Option<Piece>, Unfinished> {
        let unfinished = |what| Err(Unfinished { what, line: self.since + 1 });
        match &self.place {
            Place::BlockComment(_) => return unfinished("the comment"),
            Place::Quoted { quote: '\'', .. } => return unfinished("the string"),
            Place::Quoted { .. } => return unfinished("the quoted name"),
            Place::Dollar(..) => return unfinished("the dollar quote"),
            Place::Command => return Ok(self.command()),
            Place::Open | Place::LineComment | Place::Tag(_) => {}
        }
        self.end_word();
        self.note_content(self.before.is_some());
        Ok(self.statement())
    }

    /// Whether the text so far is nothing, or has come to an end.
    pub(crate) fn is_complete(&self) -> bool {
        let is_between = matches!(self.place, Place::Open | Place::LineComment | Place::Command);
        is_between && (!self.has_content && self.before.is_none() || self.place == Place::Command)
    }

    /// Whether the next character is neither in a string nor in a comment.
    pub(crate) fn is_in_the_open(&self) -> bool {
        matches!(self.place, Place::Open | Place::Command)
    }

    /// The quote that is open.
    pub(crate) fn quote(&self) -> Option<char> {
        match &self.place {
            Place::Quoted { quote, .. } => Some(*quote),
            _ => None,
        }
    }

    fn take(&mut self, letter: char) -> Option<Piece> {
        if letter == '\n' {
            self.line += 1;
        }
        let before = self.before.take();
        let goes_on = std::mem::take(&mut self.has_left_escapes) && letter == '\'';
        match &mut self.place {
            Place::Open if goes_on => self.place = Place::Quoted { quote: letter, escapes: true },
            Place::Open => return self.take_in_the_open(letter, before),
            Place::Command if letter == '\n' => return self.command(),
            Place::Command => {}
            Place::LineComment => {
                if letter == '\n' {
                    self.place = Place::Open;
                }
            }
            Place::BlockComment(depth) => match (before, letter) {
                (Some('*'), '/') if *depth == 1 => self.place = Place::Open,
                (Some('*'), '/') => *depth -= 1,
                (Some('/'), '*') => *depth += 1,
                _ => self.before = Some(letter),
            },
            // A doubled quote ends it and begins the next, which comes to the same.
            Place::Quoted { quote, escapes } if letter == *quote && before.is_none() => {
                self.has_left_escapes = *escapes;
                self.place = Place::Open;
            }
            Place::Quoted { escapes, .. } => {
                self.before = (*escapes && letter == '\\' && before.is_none()).then_some(letter);
            }
            Place::Tag(start) => {
                let start = *start;
                if letter == '$' {
                    self.text.push(letter);
                    self.place = Place::Dollar(self.text[start..].to_owned(), self.text.len());
                    return None;
                }
                let is_first = self.text.len() == start + 1;
                if !(letter == '_' || letter.is_alphabetic() || letter.is_numeric() && !is_first) {
                    self.place = Place::Open;
                    return self.take_in_the_open(letter, None);
                }
            }
            Place::Dollar(tag, start) => {
                self.text.push(letter);
                if letter == '$' && self.text[*start..].ends_with(tag.as_str()) {
                    self.place = Place::Open;
                }
                return None;
            }
        }
        self.text.push(letter);
        None
    }

    fn take_in_the_open(&mut self, letter: char, before: Option<char>) -> Option<Piece> {
        match (before, letter) {
            (Some('-'), '-') => return self.enter(Place::LineComment, letter),
            (Some('/'), '*') => return self.enter(Place::BlockComment(1), letter),
            (Some(_), _) => self.note_content(true),
            _ => {}
        }
        let in_word = self.word.is_some();
        if letter.is_alphanumeric() || letter == '_' || letter == '$' && in_word {
            self.note_content(true);
            if !in_word {
                self.word = Some(self.text.len());
            }
            self.text.push(letter);
            return None;
        }
        let escapes = self.word.is_some_and(|start| self.text[start..].eq_ignore_ascii_case("e"));
        self.end_word();
        match letter {
            ';' if !self.words.is_in_body() => return self.statement(),
            '\\' if !self.has_content => {
                // Comments before a command say nothing to anybody.
                self.reset();
                self.place = Place::Command;
                return None;
            }
            '\'' | '"' | '`' => {
                self.note_content(true);
                return self
                    .enter(Place::Quoted { quote: letter, escapes: escapes && letter == '\'' }, letter);
            }
            '$' => {
                self.note_content(true);
                return self.enter(Place::Tag(self.text.len()), letter);
            }
            // Whether these are content, the next character says.
            '-' | '/' => self.before = Some(letter),
            '(' => self.words.open(),
            ')' => self.words.close(),
            _ => {}
        }
        self.note_content(!letter.is_whitespace() && self.before.is_none());
        self.text.push(letter);
        None
    }

    fn enter(&mut self, place: Place, letter: char) -> Option<Piece> {
        self.place = place;
        self.since = self.line;
        self.text.push(letter);
        None
    }

    fn note_content(&mut self, is_content: bool) {
        if is_content && !self.has_content {
            self.has_content = true;
            self.start = self.line;
        }
    }

    fn end_word(&mut self) {
        if let Some(start) = self.word.take() {
            self.words.take(&self.text[start..]);
        }
    }

    fn statement(&mut self) -> Option<Piece> {
        let (has_content, line) = (self.has_content, self.start + 1);
        let (text, words) = self.reset();
        has_content.then(|| Piece::Statement(words.statement(text.trim().to_owned(), line)))
    }

    fn command(&mut self) -> Option<Piece> {
        let (text, _) = self.reset();
        Some(Piece::Command(text.trim().to_owned()))
    }

    fn reset(&mut self) -> (String, Words) {
        self.place = Place::Open;
        self.has_content = false;
        self.before = None;
        (std::mem::take(&mut self.text), std::mem::take(&mut self.words))
    }
}

#[cfg(test)]
mod tests;
