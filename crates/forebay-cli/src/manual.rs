//! The manual, `docs/`: its contents list every page, its links lead somewhere, and every name in it exists.

mod commands;
mod configurations;
mod contents;
mod links;
mod names;
mod page;
mod programs;
