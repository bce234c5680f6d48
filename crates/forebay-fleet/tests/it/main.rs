//! The fleet's budget, from outside.

mod cancellation;
mod conformance;
mod costs;
mod counter;
mod fairness;
mod histories;
mod ledger;
mod logs;
mod lost;
mod machine;
mod manual;
mod metrics;
mod numbers;
mod quiet;
mod rate;
mod stalls;
mod start;
mod strict;
mod support;
mod survey;
mod wiring;
mod world;
