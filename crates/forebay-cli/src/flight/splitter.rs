//! Splits what the user writes into statements and commands, as it comes in.

use forebay_flight::sql::{self, Lexer, Token, TokenKind};

use super::statement::{Statement, Words};

/// A statement for the server or a command for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Statement(Statement),
    /// A line that began with a backslash, without it.
    Command(String),
}

/// The text ended inside of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} that begins in line {line} has no end; nothing of this statement was sent")]
pub(crate) struct Unfinished {
    what: &'static str,
    line: usize,
}

/// Takes text in parts of any size, and reads each part once.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    text: String,
    /// Where the statement begins in the text. Positions of tokens count from here.
    from: usize,
    lexer: Lexer,
    words: Words,
    /// Where the statement's first token is that is not a comment.
    content: Option<usize>,
    /// The text is a command, up to the end of the line.
    is_command: bool,
    /// Lines before the statement.
    line: usize,
}

impl Splitter {
    /// Takes more text, and returns the pieces that it completes.
    pub(crate) fn feed(&mut self, text: &str) -> Vec<Piece> {
        self.text.push_str(text);
        let mut pieces = Vec::new();
        loop {
            if self.is_command {
                let Some(end) = self.rest().find('\n') else { break };
                pieces.push(self.command(end + 1));
            } else {
                let Some(token) = self.lexer.next(&self.text[self.from..], false) else { break };
                pieces.extend(self.take(token));
            }
        }
        self.text.drain(..self.from);
        self.from = 0;
        pieces
    }

    /// Takes the end of the text. What is left is a statement, with or without a semicolon.
    ///
    /// # Errors
    /// If the statement cannot be complete.
    pub(crate) fn finish(&mut self) -> Result<Option<Piece>, Unfinished> {
        if self.is_command {
            return Ok(Some(self.command(self.text.len())));
        }
        // Only the last token was held back, and a semicolon never is: none of these completes a statement.
        while let Some(token) = self.lexer.next(&self.text, true) {
            if let TokenKind::Unfinished(what) = token.kind {
                let what = match what {
                    sql::Unfinished::String => "the string",
                    sql::Unfinished::QuotedName(_) => "the quoted name",
                    sql::Unfinished::Comment => "the comment",
                    sql::Unfinished::DollarQuote => "the dollar quote",
                };
                return Err(Unfinished { what, line: self.line + lines(&self.text[..token.start]) + 1 });
            }
            self.take(token);
        }
        Ok(self.statement(self.text.len(), self.text.len()))
    }

    /// Whether no statement has begun, or the text is a command.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_command || self.content.is_none() && self.held_back().all(|token| is_comment(token.kind))
    }

    /// Whether the next character is neither in a string nor in a comment.
    pub(crate) fn is_in_the_open(&self) -> bool {
        let last = self.held_back().last().map(|token| token.kind);
        self.is_command || !matches!(last, Some(TokenKind::LineComment | TokenKind::Unfinished(_)))
    }

    /// The quote that is open.
    pub(crate) fn quote(&self) -> Option<char> {
        match self.held_back().last()?.kind {
            TokenKind::Unfinished(sql::Unfinished::String) => Some('\''),
            TokenKind::Unfinished(sql::Unfinished::QuotedName(quote)) => Some(quote),
            _ => None,
        }
    }

    /// The tokens at the end of the text that more text could change.
    fn held_back(&self) -> impl Iterator<Item = Token> {
        let mut lexer = self.lexer.clone();
        std::iter::from_fn(move || lexer.next(&self.text, true))
    }

    fn take(&mut self, token: Token) -> Option<Piece> {
        match token.kind {
            kind if is_comment(kind) => return None,
            TokenKind::Semicolon if !self.words.is_in_body() => {
                return self.statement(token.start, token.end);
            }
            TokenKind::Other if self.content.is_none() && token.text(self.rest()) == "\\" => {
                // The comments before a command are not part of it.
                self.next(token.end);
                self.is_command = true;
                return None;
            }
            TokenKind::Word => self.words.take(token.text(&self.text[self.from..])),
            TokenKind::Other => self.words.sign(token.text(&self.text[self.from..])),
            TokenKind::Open => self.words.open(),
            TokenKind::Close => self.words.close(),
            _ => {}
        }
        self.content.get_or_insert(token.start);
        None
    }

    /// The statement up to `end`, if there is more than comments. The next one begins at `next`.
    fn statement(&mut self, end: usize, next: usize) -> Option<Piece> {
        let piece = self.content.map(|content| {
            let (text, line) = (&self.rest()[..end], self.line + lines(&self.rest()[..content]) + 1);
            Piece::Statement(self.words.statement(text.trim().to_owned(), line))
        });
        self.next(next);
        piece
    }

    fn command(&mut self, end: usize) -> Piece {
        let line = self.rest()[..end].trim().to_owned();
        self.next(end);
        Piece::Command(line)
    }

    fn next(&mut self, from: usize) {
        self.line += lines(&self.rest()[..from]);
        self.from += from;
        self.lexer.restart();
        (self.words, self.content, self.is_command) = (Words::default(), None, false);
    }

    fn rest(&self) -> &str {
        &self.text[self.from..]
    }
}

fn is_comment(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::LineComment | TokenKind::BlockComment)
}

fn lines(text: &str) -> usize {
    text.matches('\n').count()
}

#[cfg(test)]
mod tests;
