//! The load of pgbench on several contestants in turn: transactions per second, and what each costs the proxy.

use std::cell::RefCell;

use super::contestant::Contestant;
use super::pgbench::Pgbench;
use crate::race::{Figures, Lane, race};
use crate::report::{Report, Table};

/// Runs the same load on each contestant, `rounds` times in turn. Adds both tables to the report, and returns that of rates.
pub(super) fn compare(
    report: &mut Report,
    title: &str,
    rounds: usize,
    load: Pgbench,
    contestants: &[&Contestant],
) -> anyhow::Result<Table> {
    let costs: Vec<RefCell<Vec<f64>>> = contestants.iter().map(|_| RefCell::default()).collect();
    let lanes = contestants.iter().zip(&costs).map(|(contestant, costs)| {
        Lane::new(contestant.name, move || {
            let before = contestant.processor_time()?;
            let counted = load.run(&contestant.door)?;
            if let Some((before, after)) = before.zip(contestant.processor_time()?) {
                let each = (after - before).as_secs_f64() * 1e6 / counted.transactions as f64;
                costs.borrow_mut().push(each);
            }
            Ok(counted.per_second)
        })
    });
    let rates = Table::new(title, "1/s", race(rounds, lanes.collect())?);
    let mut rows = Vec::new();
    for (contestant, costs) in contestants.iter().zip(&costs) {
        // The first is the warm-up.
        let costs: Vec<f64> = costs.borrow().iter().skip(1).copied().collect();
        if !costs.is_empty() {
            rows.push(Figures::of(contestant.name, costs)?);
        }
    }
    report.tables.push(rates.clone());
    report.table(format!("{title}: processor time of the proxy for each"), "us", rows);
    Ok(rates)
}
