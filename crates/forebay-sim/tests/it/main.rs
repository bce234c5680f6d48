//! Tests of the simulator through its public API.

mod assertions;
mod files;
mod fleets;
mod output;
mod worlds;

use forebay_sim::{Assertion, Outcome, Scenario, run, shipped};

/// A shipped scenario with some keys overridden.
fn scenario(name: &str, settings: &[&str]) -> Scenario {
    let text = shipped().iter().find(|shipped| shipped.name == name).expect("a shipped scenario").text;
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Scenario::parse(name, text, &settings).expect("valid settings")
}

/// A scenario given as text.
fn parse(text: &str) -> Scenario {
    Scenario::parse("test.yaml", text, &[]).expect("a valid scenario")
}

fn simulate(scenario: &Scenario) -> Outcome {
    run(scenario, scenario.seed, &mut ()).expect("not interrupted")
}

/// The assertions that do not hold.
fn broken(outcome: &Outcome) -> Vec<Assertion> {
    outcome.verdicts.iter().filter(|verdict| !verdict.holds()).map(|verdict| verdict.assertion).collect()
}
