//! Parses SQL without exhausting the stack.

use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::SqlError;

/// The nesting limit of expressions, which protects the stack.
pub(crate) const DEPTH: usize = 50;

/// The longest chain of tokens such as `1 + 1 + 1`. Its tree is as deep, and is walked by recursion.
const CHAIN: usize = 2_000;

/// The largest number of columns, as in PostgreSQL.
pub(super) const COLUMNS: usize = 1_664;

/// Parses one statement.
pub(crate) fn parse(sql: &str) -> Result<Statement, SqlError> {
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
    // Before the tree is built, which is many times as large.
    if let Ok(tokens) = &tokens
        && longest_list(tokens.iter().map(|token| &token.token)) > COLUMNS
    {
        return Err(too_many_columns());
    }
    let statement = tokens.map_err(ParserError::from).and_then(|tokens| {
        if longest_chain(tokens.iter().map(|token| &token.token)) > CHAIN {
            return Err(ParserError::RecursionLimitExceeded);
        }
        let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH).with_tokens_with_locations(tokens);
        let statement = parser.parse_statement()?;
        parser.expect_token(&Token::EOF)?;
        Ok(statement)
    });
    statement.map_err(|error| match error {
        ParserError::RecursionLimitExceeded => SqlError::new("54001", "the statement is nested too deeply"),
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => {
            SqlError::new("42601", format!("syntax error: {text}"))
        }
    })
}

/// Whether a tree of these tokens can be walked.
pub(crate) fn is_shallow(tokens: &[Token]) -> bool {
    longest_chain(tokens.iter()) <= CHAIN
}

/// The most tokens between two commas on one level of parentheses. The tree is not deeper than that.
fn longest_chain<'a>(tokens: impl Iterator<Item = &'a Token>) -> usize {
    let (mut levels, mut longest) = (vec![0_usize], 0);
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket => levels.push(0),
            Token::RParen | Token::RBracket if levels.len() > 1 => drop(levels.pop()),
            Token::Comma => levels.last_mut().into_iter().for_each(|level| *level = 0),
            Token::Whitespace(_) => continue,
            _ => {}
        }
        if let Some(level) = levels.last_mut() {
            *level += 1;
            longest = longest.max(*level);
        }
    }
    longest
}

pub(super) fn too_many_columns() -> SqlError {
    SqlError::new("54011", format!("target lists can have at most {COLUMNS} entries"))
}

/// The most items after SELECT or RETURNING. It may count too few; SQLite has a limit of its own.
fn longest_list<'a>(tokens: impl Iterator<Item = &'a Token>) -> usize {
    // For each level of parentheses: the number of items, if it is in a list.
    let (mut levels, mut longest) = (vec![None], 0);
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket => levels.push(None),
            Token::RParen | Token::RBracket if levels.len() > 1 => drop(levels.pop()),
            Token::Comma => {
                if let Some(Some(items)) = levels.last_mut() {
                    *items += 1;
                    longest = longest.max(*items);
                }
            }
            Token::Word(word) => {
                let list = match word.keyword {
                    Keyword::SELECT | Keyword::RETURNING => Some(1),
                    Keyword::FROM
                    | Keyword::WHERE
                    | Keyword::GROUP
                    | Keyword::HAVING
                    | Keyword::ORDER
                    | Keyword::UNION
                    | Keyword::INTERSECT
                    | Keyword::EXCEPT => None,
                    _ => continue,
                };
                levels.last_mut().into_iter().for_each(|level| *level = list);
            }
            _ => {}
        }
    }
    longest
}
