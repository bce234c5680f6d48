//! The fleet's budget, from outside.

mod cancellation;
mod conformance;
mod costs;
mod counter;
mod fairness;
mod histories;
mod ledger;
mod lost;
mod machine;
mod manual;
mod numbers;
mod strict;
mod support;
mod survey;
mod world;
