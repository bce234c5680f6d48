//! Everything in the table about a cluster, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use forebay::rt::TokioRuntime;
use forebay_fleet::operator::{self, InstanceReport, Survey};
use forebay_fleet::{Table, TableError};
use serde_json::{Value, json};

#[derive(Debug)]
pub(super) struct Status {
    endpoint: String,
    survey: Survey,
}

impl Status {
    pub(super) async fn read(
        table: &dyn Table,
        runtime: &TokioRuntime,
        endpoint: &str,
    ) -> Result<Self, TableError> {
        let survey = operator::survey(table, runtime, endpoint).await?;
        Ok(Self { endpoint: endpoint.to_owned(), survey })
    }

    /// Whether everything adds up.
    pub(super) fn is_exact(&self) -> bool {
        self.survey.is_exact()
    }

    /// One JSON object.
    pub(super) fn record(&self) -> Value {
        let (held, capacity) = self.survey.totals();
        let shards: Vec<Value> = self
            .survey
            .shards
            .iter()
            .map(|(shard, report)| {
                json!({
                    "shard": shard,
                    "capacity": report.capacity,
                    "free": report.free,
                    "drift": report.drift,
                })
            })
            .collect();
        let instance = |one: &InstanceReport| {
            json!({
                "instance": one.instance,
                "shard": one.shard,
                "slots": one.slots,
                "node": one.node,
                "beat_age_seconds": one.heartbeat_age.as_secs(),
                "lease_seconds": one.lease.as_secs(),
                "overdue": is_overdue(one),
            })
        };
        let counter = self.survey.counter.map(|counter| {
            json!({
                "active": counter.active,
                "age_seconds": counter.age.as_secs(),
                "leases": counter.leases,
                "drift": counter.drift(),
            })
        });
        json!({
            "endpoint": self.endpoint,
            "held": held,
            "capacity": capacity,
            "exact": self.is_exact(),
            "shards": shards,
            "broken": self.survey.broken,
            "instances": self.survey.instances.iter().map(instance).collect::<Vec<_>>(),
            "counter": counter,
            "rate_reserved_seconds": self.survey.rate_reserved.map(|ahead| ahead.as_secs_f64()),
        })
    }

    fn write_ledger(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, capacity) = self.survey.totals();
        let drift: i64 = self.survey.shards.iter().map(|(_, shard)| shard.drift.abs()).sum();
        let instances: BTreeMap<&str, Vec<&InstanceReport>> =
            self.survey.instances.iter().fold(BTreeMap::new(), |mut all, one| {
                all.entry(one.instance.as_str()).or_default().push(one);
                all
            });
        writeln!(f, "ledger: {held} of {capacity} slots held by {}", counted(instances.len(), "instance"))?;
        if drift > 0 {
            writeln!(f, "drift: {drift}; the ledger is damaged: run `forebay lease reset`")?;
            for (shard, report) in self.survey.shards.iter().filter(|(_, report)| report.drift != 0) {
                let (free, capacity) = (report.free, report.capacity);
                writeln!(f, "  shard {shard}: capacity {capacity}, free {free}, drift {:+}", report.drift)?;
            }
        } else if self.survey.broken.is_empty() {
            writeln!(f, "drift: none")?;
        }
        for shard in &self.survey.broken {
            writeln!(f, "shard {shard} cannot be read; the ledger is damaged: run `forebay lease reset`")?;
        }
        if instances.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<12} {:>6} {:>6} {:>8}  {:>10}  ", "instance", "slots", "node", "shards", "beat")?;
        for (name, entries) in instances {
            let slots: u64 = entries.iter().map(|entry| entry.slots).sum();
            let shards: Vec<String> = entries.iter().map(|entry| entry.shard.to_string()).collect();
            // Other instances act on the oldest heartbeat.
            let Some(oldest) = entries.iter().max_by_key(|entry| entry.heartbeat_age) else { continue };
            let late = if is_overdue(oldest) { "overdue: its slots are about to be freed" } else { "" };
            let node = entries.iter().find_map(|entry| entry.node);
            let (node, age) =
                (node.map_or("-".to_owned(), |node| node.to_string()), ago(oldest.heartbeat_age));
            let line = format!("{name:<12} {slots:>6} {node:>6} {:>8}  {age:>10}  {late}", shards.join(","));
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.endpoint)?;
        let has_ledger = !self.survey.shards.is_empty() || !self.survey.broken.is_empty();
        if !has_ledger && self.survey.counter.is_none() {
            writeln!(f, "nobody has joined yet")?;
        }
        if has_ledger {
            self.write_ledger(f)?;
        }
        if let Some(counter) = self.survey.counter {
            let age = ago(counter.age);
            writeln!(f, "counter: {} active, {} leases, written {age}", counter.active, counter.leases)?;
            match counter.drift() {
                0 => writeln!(f, "drift: none")?,
                // One reading may differ: the counter and its leases are read one after the other.
                drift => writeln!(
                    f,
                    "drift: {drift:+}; if it stays, run `forebay lease reconcile`: services go on meanwhile"
                )?,
            }
        }
        match self.survey.rate_reserved {
            None => Ok(()),
            Some(Duration::ZERO) => writeln!(f, "rate: a permit is available now"),
            Some(wait) => writeln!(f, "rate: a new caller waits {:.1} s for a permit", wait.as_secs_f64()),
        }
    }
}

/// Whether the last heartbeat is so old that other instances free the slots.
fn is_overdue(instance: &InstanceReport) -> bool {
    instance.heartbeat_age > instance.lease
}

fn ago(age: Duration) -> String {
    format!("{} ago", forebay::duration::show(Duration::from_secs(age.as_secs())))
}

fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fleet::operator::ShardReport;

    fn entry(shard: u8, node: Option<u16>) -> InstanceReport {
        let (heartbeat_age, lease) = (Duration::from_secs(3), Duration::from_secs(120));
        InstanceReport { instance: "his4k2pq".to_owned(), shard, slots: 5, node, heartbeat_age, lease }
    }

    #[test]
    fn it_shows_the_number_at_home_and_what_cannot_be_read() {
        let mut survey = Survey::default();
        survey.shards = vec![(0, ShardReport { capacity: 50, free: 40, drift: 0 })];
        survey.instances = vec![entry(0, None), entry(5, Some(700))];
        let mut status = Status { endpoint: "host".to_owned(), survey };
        let text = status.to_string();
        let line = text.lines().find(|line| line.starts_with("his4k2pq")).unwrap();
        assert_eq!(line.split_whitespace().take(4).collect::<Vec<_>>(), ["his4k2pq", "10", "700", "0,5"]);
        assert!(status.is_exact() && text.contains("drift: none"), "{text}");
        status.survey.broken = vec![3];
        let text = status.to_string();
        assert!(!status.is_exact() && text.contains("shard 3 cannot be read"), "{text}");
        assert!(!text.contains("drift: none") && status.record()["broken"] == json!([3]), "{text}");
    }
}
