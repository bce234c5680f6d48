//! SQL as far as a migration needs to understand it: statements, their tokens and their kinds.

mod lexer;
mod splitter;
mod statement;

pub(crate) use splitter::{Problem, split};
pub(crate) use statement::{Kind, Statement, Word};
