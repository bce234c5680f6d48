//! The model beside the simulator, on random fleets.

use forebay::{Rng, Seed};

use super::check::Check;
use super::fleet::Fleet;
use super::suggestion::Suggestion;
use super::*;

/// A fleet of at most so many connections and processes.
fn random_fleet(number: u64, most: u64, processes: u64) -> Fleet {
    let mut rng = Seed::new(number).fork("fleet").rng();
    let from = |rng: &mut Rng, low: u64, high: u64| low + rng.below(high - low + 1);
    loop {
        let (services, instances) = (from(&mut rng, 1, 6), from(&mut rng, 1, 30));
        let (pools, connections) = (from(&mut rng, 1, 3), from(&mut rng, 2, 120));
        let fleet = Fleet::of(services, instances, pools, connections);
        if fleet.total() <= most && fleet.processes() <= processes {
            return fleet;
        }
    }
}

/// Small fleets only, as few as shows that the model is right: each takes seconds in a debug build.
/// `FOREBAY_PLAN_FLEETS=20` checks so many of up to 10,000 connections, best with `--release`.
#[test]
fn suggestions_for_random_fleets_pass_their_check() {
    let all = std::env::var("FOREBAY_PLAN_FLEETS").ok().and_then(|count| count.parse().ok());
    let (fleets, most, processes) = all.map_or((6, 300, 12), |count: u64| (count, 10_000, 180));
    let mut failed = Vec::new();
    for number in 0..fleets {
        let fleet = random_fleet(number, most, processes);
        let suggestion = Suggestion::of(&fleet, false, "forebay").fleet;
        let check = Check::of(&suggestion).expect("a suggestion is a valid scenario");
        let outcome = forebay_sim::run(&check.scenario, number, &mut ()).expect("nobody ends it");
        let checked = check.compare(&outcome);
        let Fleet { services, instances, pools, connections, .. } = fleet;
        let shape = format!("{services}x{instances}x{pools}x{connections}");
        let row = |name: &str| checked.rows.iter().find(|row| row.name == name).expect("it was simulated");
        let pair = |name| {
            let row = row(name);
            format!(
                "{:>8.3} {:>8.3} {:>+6.1} %",
                row.predicted.0,
                row.simulated,
                row.error_percent().unwrap_or_default()
            )
        };
        let worst = row("worst second, steady");
        println!(
            "{number:>2} {shape:<14} {:>6} fill {} peak {} steady {} worst {}..{} {}",
            suggestion.total(),
            pair("fill time of the fleet"),
            pair("peak opens, cold start"),
            pair("opens, steady"),
            worst.predicted.0,
            worst.predicted.1,
            worst.simulated,
        );
        if !checked.passed() {
            failed.push(format!("{shape}:{}", report::check(&checked)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
