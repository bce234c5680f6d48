//! The fleet's budget, from outside.

mod conformance;
mod histories;
mod machine;
mod support;
mod world;
