//! `forebay lease` and `forebay limiter` as operators meet them, on a DynamoDB in this process.

mod address;
mod lease;
mod limiter;
mod repair;
mod server;
