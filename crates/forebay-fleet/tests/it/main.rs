//! The fleet's budget, from outside.

mod cancellation;
mod conformance;
mod costs;
mod counter;
mod histories;
mod ledger;
mod machine;
mod manual;
mod quiet;
mod rate;
mod strict;
mod support;
mod world;
