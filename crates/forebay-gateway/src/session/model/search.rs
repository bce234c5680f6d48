//! The search for a seed that fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay::Seed;

use super::play::Scripts;
use super::script::{Event, script};

/// How many sessions: `FOREBAY_MODEL_SESSIONS`, or what a test has time for. `FOREBAY_SEED` is the first seed.
pub(super) fn sessions() -> u64 {
    number("FOREBAY_MODEL_SESSIONS").unwrap_or(3_000)
}

/// The only seed that is asked for: `FOREBAY_MODEL_SEED`.
pub(super) fn only_seed() -> Option<u64> {
    number("FOREBAY_MODEL_SEED")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs it with scripts from each seed, and returns what each run did. Panics if one fails, with a script that is as short as possible.
pub(super) fn search<T>(run: impl Fn(u64, &Scripts) -> Result<T, String>) -> Vec<T> {
    let attempt = |seed: u64, scripts: &Scripts| {
        catch_unwind(AssertUnwindSafe(|| run(seed, scripts))).ok().and_then(Result::ok)
    };
    let first = number("FOREBAY_SEED").unwrap_or(0);
    let seeds = only_seed().map_or(first..first + sessions() / 2, |seed| seed..seed + 1);
    let mut results = Vec::new();
    for seed in seeds {
        let scripts = scripts(seed);
        let Some(result) = attempt(seed, &scripts) else {
            let short = shrink(|scripts| attempt(seed, scripts).is_none(), scripts);
            let text: Vec<String> =
                short.iter().map(|events| events.iter().map(describe).collect()).collect();
            // Once more, for its message.
            eprintln!("seed {seed} (FOREBAY_MODEL_SEED), one client:\n{}other client:\n{}", text[0], text[1]);
            panic!("{}", run(seed, &short).err().expect("it fails"));
        };
        results.push(result);
    }
    results
}

fn scripts(seed: u64) -> Scripts {
    let mut rng = Seed::new(seed).fork("script").rng();
    [(); 2].map(|()| {
        let length = 4 + rng.below(16);
        script(&mut rng, length)
    })
}

/// Leaves out what is not needed to fail, one by one.
fn shrink(fails: impl Fn(&Scripts) -> bool, mut scripts: Scripts) -> Scripts {
    loop {
        let mut shorter = false;
        for who in 0..2 {
            let mut place = 0;
            // The last one is the Sync that ends everything.
            while place + 1 < scripts[who].len() {
                let mut attempt = scripts.clone();
                attempt[who].remove(place);
                if fails(&attempt) {
                    (scripts, shorter) = (attempt, true);
                } else {
                    place += 1;
                }
            }
        }
        if !shorter {
            return scripts;
        }
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::Send { what, .. } => format!("  {what}\n"),
        Event::Alter(oid) => format!("  -- column of type {oid}\n"),
    }
}
