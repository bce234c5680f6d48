//! `forebay flight sql` as its users meet it.

mod failures;
mod manual;
mod output;
mod server;
mod terminal;
mod typing;
