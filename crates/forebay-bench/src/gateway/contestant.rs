//! A way to the server: direct, or through a proxy that runs in processes of its own.

use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

use anyhow::ensure;
use tempfile::TempDir;

use super::behind::Behind;
use super::door::Door;
use crate::clock::{self, Stopwatch};
use crate::process;

/// How long a proxy may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(40);

/// The names of contestants in tables and goals.
pub(super) const DIRECT: &str = "direct TLS connection";
pub(super) const NOTHING: &str = "canned answers, nothing behind";

/// A way to the server. Dropping it ends its processes.
#[derive(Debug)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) door: Door,
    pub(super) processes: Vec<Child>,
    /// Its configuration, which it may read again.
    pub(super) _files: Option<TempDir>,
}

impl Contestant {
    pub(super) fn direct(behind: &Behind) -> anyhow::Result<Self> {
        Ok(Self { name: DIRECT, door: behind.door()?, processes: Vec::new(), _files: None })
    }

    /// Waits until it accepts connections.
    pub(super) fn wait_until_it_listens(&mut self) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        loop {
            for process in &mut self.processes {
                let ended = process.try_wait()?;
                ensure!(ended.is_none(), "{} ended at its start: {ended:?}", self.name);
            }
            if TcpStream::connect(self.door.address).is_ok() {
                return Ok(());
            }
            ensure!(watch.elapsed() < START_TIMEOUT, "{} does not listen", self.name);
            clock::nap(Duration::from_millis(10));
        }
    }

    /// Processor time of its processes so far. A direct connection has none.
    pub(super) fn processor_time(&self) -> anyhow::Result<Option<Duration>> {
        let times = self.processes.iter().map(|process| process::total_time(&process.id().to_string()));
        let times = times.collect::<anyhow::Result<Vec<_>>>()?;
        Ok((!times.is_empty()).then(|| times.iter().sum()))
    }

    /// Resident memory of its processes, in MB.
    pub(super) fn memory(&self) -> anyhow::Result<f64> {
        let sizes = self.processes.iter().map(|process| process::memory(&process.id().to_string(), "VmRSS"));
        Ok(sizes.sum::<anyhow::Result<f64>>()? / 1e6)
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // An error means that it has ended already. Nothing that a proxy would do at its end is measured.
            drop(process.kill());
            drop(process.wait());
        }
    }
}
