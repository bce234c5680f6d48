//! A fleet of reservoirs against a database that rations connections, in virtual time.
//!
//! The world is modelled: the cluster with its token bucket, its cap and its session end; the credential service; the
//! shared store; machines whose clocks are wrong and whose processes crash. What runs in it is not: reservoir, refill,
//! expiry, limiter and leases are the code that ships, driven by another [`Runtime`](forebay::rt::Runtime).
//!
//! ```
//! use forebay_sim::{Scenario, run, shipped};
//!
//! let local = shipped().iter().find(|shipped| shipped.name == "local").ok_or("not shipped")?;
//! let scenario = Scenario::parse("local.yaml", local.text, &["duration=2m".to_owned()])?;
//! let outcome = run(&scenario, scenario.seed, &mut ()).ok_or("broken off")?;
//! assert!(outcome.passed(), "{outcome}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod books;
mod date;
mod director;
mod fleet;
mod judge;
mod latency;
mod load;
mod outcome;
mod page;
mod record;
mod replay;
mod row;
mod run;
pub mod scenario;
mod seeds;
mod trace;
mod world;

pub use date::rfc3339;
pub use judge::{Assertion, Recovery, Verdict};
pub use latency::Latency;
pub use outcome::{Counts, Outcome, Waits};
pub use page::page;
pub use record::{Sample, TableBill};
pub use replay::shell_word;
pub use row::Row;
pub use run::{Watch, run};
pub use scenario::{Scenario, ScenarioError, Shipped, shipped};
pub use seeds::{Failed, Seeds, Worst, run_seeds};
