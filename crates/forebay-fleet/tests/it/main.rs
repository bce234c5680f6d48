//! The fleet's budget, from outside.

mod conformance;
mod support;
