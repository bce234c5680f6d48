//! DynamoDB as the table of a fleet: against one in the process, over HTTP, and against answers that it never gives.

mod answers;
mod cancellation;
mod conformance;
mod errors;
mod fleet;
mod policy;
mod readme;
mod server;
mod setup;
mod witness;
