//! The fleet's budget, from outside.

mod cancellation;
mod conformance;
mod costs;
mod counter;
mod histories;
mod ledger;
mod logs;
mod machine;
mod manual;
mod quiet;
mod rate;
mod start;
mod strict;
mod support;
mod world;
