//! Reading SQL, without giving it the stack.

use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::SqlError;

/// How deep expressions may be nested: more would be an attack on the stack.
const DEPTH: usize = 50;

/// How many tokens a chain such as 1 + 1 + 1 may have: it makes a tree as deep, which is walked by recursion.
const CHAIN: usize = 2_000;

/// Reads one statement.
///
/// # Errors
/// If it is none, or one that is nested too deeply.
pub(super) fn parse(sql: &str) -> Result<Statement, SqlError> {
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
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

/// The most tokens between two commas on one level of parentheses: no tree that they make is deeper.
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
