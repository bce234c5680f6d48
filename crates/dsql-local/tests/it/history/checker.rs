//! Checks whether a history satisfies snapshot isolation with first-committer-wins. It knows nothing of the
//! implementation.
//!
//! A transaction has two points in time, its snapshot and its end, each within a window. Its reads say which
//! commits its snapshot comes after and before. Its writes and locks say with which transactions it must not
//! overlap. The history is valid if all points can be ordered accordingly. Only what no order allows is
//! reported, so there are no false alarms.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::order::{Kind, Order, Point, Violation};
use super::record::{Act, History, Key, Outcome, Transaction, Version};

/// What was found.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) violations: Vec<Violation>,
    /// How often there was more than one explanation.
    pub(super) open: usize,
}

/// Checks a history. No statement may take longer than `patience` beyond the delay of the machine.
pub(super) fn check(history: &History, patience: Duration, sessions: u32) -> Verdict {
    let mut violations = Vec::new();
    for transaction in &history.transactions {
        alone(transaction, history.bystander * sessions + patience, &mut violations);
    }
    let effects: Vec<Effect> = history.transactions.iter().map(Effect::of).collect();
    let mut checker = Checker { history, effects: &effects, order: Order::default(), violations };
    let writers = checker.writers();
    let successors = checker.successors();
    for transaction in &history.transactions {
        for window in [transaction.snapshot, transaction.end] {
            checker.order.point(window);
        }
    }
    for number in 0..effects.len() {
        checker.order.fix(snapshot(number), end(number), Kind::Given, String::new());
    }
    checker.reads(&writers, &successors);
    checker.lives(&successors);
    checker.locks(&successors);
    checker.conflicts();
    let Checker { order, mut violations, .. } = checker;
    let (impossible, open) = order.solve();
    violations.extend(impossible);
    Verdict { violations, open }
}

fn snapshot(transaction: usize) -> Point {
    2 * transaction
}

fn end(transaction: usize) -> Point {
    2 * transaction + 1
}

/// Checks a transaction by itself: it sees its own writes, and otherwise always the same values.
fn alone(transaction: &Transaction, patience: Duration, violations: &mut Vec<Violation>) {
    let name = &transaction.name;
    let mut view: BTreeMap<Key, (Option<Version>, bool)> = BTreeMap::new();
    for act in &transaction.acts {
        let Some((key, seen)) = act.seen() else { continue };
        if let Some((expected, own)) = view.get(&key).filter(|(expected, _)| *expected != seen) {
            let kind = if *own { Kind::OwnWriteUnseen } else { Kind::NonRepeatableRead };
            let verb = if *own { "wrote" } else { "had seen" };
            let why = format!("{name} {verb} {expected:?} as key {key}, and then found {seen:?}");
            violations.push(Violation { kind, why });
        }
        let now = if let Act::Write { made, .. } = *act { (made, true) } else { (seen, false) };
        let own = now.1 || view.get(&key).is_some_and(|(_, own)| *own);
        view.insert(key, (now.0, own));
    }
    if transaction.slowest > patience {
        let why = format!("{name} waited {:?} for an answer; at most {patience:?}", transaction.slowest);
        violations.push(Violation { kind: Kind::Waited, why });
    }
    if let Outcome::Failed(how) = &transaction.outcome {
        violations.push(Violation { kind: Kind::Unexpected, why: format!("{name} failed: {how}") });
    }
}

/// The effect of a transaction.
struct Effect {
    committed: bool,
    /// What its snapshot showed.
    saw: BTreeMap<Key, Option<Version>>,
    /// The rows that it locked and did not change.
    locked: BTreeSet<Key>,
    /// The rows that it wanted to change.
    attempted: BTreeSet<Key>,
    /// The versions that it replaced, and by which.
    wrote: BTreeMap<Key, (Option<Version>, Option<Version>)>,
}

impl Effect {
    fn of(transaction: &Transaction) -> Self {
        let committed = transaction.outcome == Outcome::Committed;
        let mut effect = Self {
            committed,
            saw: BTreeMap::new(),
            locked: BTreeSet::new(),
            attempted: BTreeSet::new(),
            wrote: BTreeMap::new(),
        };
        for act in &transaction.acts {
            if let Act::Attempt(key) = act {
                effect.attempted.insert(*key);
            }
            let Some((key, seen)) = act.seen() else { continue };
            let own = effect.wrote.contains_key(&key);
            if !own {
                effect.saw.entry(key).or_insert(seen);
            }
            match *act {
                Act::Lock(..) if !own && seen.is_some() => drop(effect.locked.insert(key)),
                Act::Write { made, .. } => effect.wrote.entry(key).or_insert((seen, None)).1 = made,
                _ => {}
            }
        }
        effect.locked.retain(|key| !effect.wrote.contains_key(key));
        effect
    }

    fn touches(&self, key: Key) -> bool {
        self.locked.contains(&key) || self.wrote.contains_key(&key)
    }
}

/// Which transaction wrote a version, and whether it was its last write of the key.
type Writers = BTreeMap<Version, (usize, bool)>;
/// Which transaction replaced or deleted a version.
type Successors = BTreeMap<Version, usize>;

struct Checker<'a> {
    history: &'a History,
    effects: &'a [Effect],
    order: Order,
    violations: Vec<Violation>,
}

impl Checker<'_> {
    fn name(&self, transaction: usize) -> &str {
        &self.history.transactions[transaction].name
    }

    fn found(&mut self, kind: Kind, why: String) {
        self.violations.push(Violation { kind, why });
    }

    fn writers(&self) -> Writers {
        let mut writers = Writers::new();
        for (number, transaction) in self.history.transactions.iter().enumerate() {
            for act in &transaction.acts {
                if let Act::Write { key, made: Some(version), .. } = *act {
                    let last = self.effects[number].wrote[&key].1 == Some(version);
                    writers.insert(version, (number, last));
                }
            }
        }
        writers
    }

    fn successors(&mut self) -> Successors {
        let mut successors = Successors::new();
        for (number, effect) in self.effects.iter().enumerate().filter(|(_, effect)| effect.committed) {
            for (key, (replaced, _)) in &effect.wrote {
                let Some(version) = *replaced else { continue };
                if let Some(other) = successors.insert(version, number) {
                    let (one, two) = (self.name(other), self.name(number));
                    let why = format!(
                        "{one} and {two} both replaced version {version} of key {key}, and committed"
                    );
                    self.found(Kind::LostUpdate, why);
                }
            }
        }
        successors
    }

    /// A snapshot comes after the commit of what it shows, and before that of what replaced it.
    fn reads(&mut self, writers: &Writers, successors: &Successors) {
        let last = self.effects.len().saturating_sub(1);
        for (number, effect) in self.effects.iter().enumerate() {
            for (key, seen) in &effect.saw {
                let Some(version) = *seen else { continue };
                let reader = self.name(number).to_owned();
                let read = format!("{reader} read version {version} of key {key}");
                match writers.get(&version) {
                    None => self.found(Kind::UnknownRead, format!("{read}, which nobody wrote")),
                    Some((writer, _)) if !self.effects[*writer].committed && *writer != number => {
                        let why = format!("{read} of {}, which did not commit", self.name(*writer));
                        self.found(Kind::AbortedRead, why);
                    }
                    Some((writer, false)) => {
                        let why = format!("{read}, which {} replaced itself", self.name(*writer));
                        self.found(Kind::IntermediateRead, why);
                    }
                    Some((writer, true)) => {
                        let why = format!("{read}, which {} committed before", self.name(*writer));
                        self.order.fix(end(*writer), snapshot(number), Kind::DirtyRead, why);
                    }
                }
                if let Some(successor) = successors.get(&version).filter(|successor| **successor != number) {
                    let kind = if number == last { Kind::FinalState } else { Kind::StaleRead };
                    let why = format!("{read}, which {} replaced later", self.name(*successor));
                    self.order.fix(snapshot(number), end(*successor), kind, why);
                }
            }
        }
    }

    /// A key may be inserted and deleted several times. These lifetimes do not overlap, and a snapshot
    /// without the row is in none of them.
    fn lives(&mut self, successors: &Successors) {
        let last = self.effects.len().saturating_sub(1);
        let mut lives: BTreeMap<Key, Vec<(usize, Option<usize>)>> = BTreeMap::new();
        for (number, effect) in self.effects.iter().enumerate().filter(|(_, effect)| effect.committed) {
            for (key, wrote) in &effect.wrote {
                if let (None, Some(first)) = *wrote {
                    lives.entry(*key).or_default().push((number, self.death(*key, first, successors)));
                }
            }
        }
        for (key, lives) in &lives {
            for (index, (born, died)) in lives.iter().enumerate() {
                for (other_born, other_died) in &lives[index + 1..] {
                    let options = [(died, other_born), (other_died, born)].into_iter();
                    let options =
                        options.filter_map(|(died, born)| Some(vec![(end((*died)?), snapshot(*born))]));
                    let (one, two) = (self.name(*born), self.name(*other_born));
                    let why = format!(
                        "{one} and {two} both inserted key {key}, and none after the other's was deleted"
                    );
                    self.order.choose(options.collect(), Kind::LostUpdate, why);
                }
            }
            for (number, effect) in self.effects.iter().enumerate() {
                if effect.saw.get(key) != Some(&None) {
                    continue;
                }
                for (born, died) in lives.iter().filter(|(born, _)| *born != number) {
                    let mut options = vec![vec![(snapshot(number), end(*born))]];
                    options.extend(died.map(|died| vec![(end(died), snapshot(number))]));
                    let until = died.map_or("which is still there".to_owned(), |died| {
                        format!("until {} deleted it", self.name(died))
                    });
                    let why = format!(
                        "{} saw no key {key}, though {} had inserted it, {until}",
                        self.name(number),
                        self.name(*born)
                    );
                    let kind = if number == last { Kind::FinalState } else { Kind::StaleRead };
                    self.order.choose(options, kind, why);
                }
            }
        }
    }

    /// Which transaction deleted the row that began with a version.
    fn death(&self, key: Key, first: Version, successors: &Successors) -> Option<usize> {
        let (mut version, mut passed) = (first, BTreeSet::new());
        loop {
            let successor = *successors.get(&version)?;
            match self.effects[successor].wrote.get(&key)?.1 {
                Some(next) if passed.insert(version) => version = next,
                Some(_) => return None,
                None => return Some(successor),
            }
        }
    }

    /// A lock is like a change: no other transaction that locks or changes the row may overlap.
    fn locks(&mut self, successors: &Successors) {
        let mut holders: BTreeMap<Version, Vec<usize>> = BTreeMap::new();
        for (number, effect) in self.effects.iter().enumerate().filter(|(_, effect)| effect.committed) {
            for key in &effect.locked {
                let Some(version) = effect.saw[key] else { continue };
                let locked = format!("{} locked version {version} of key {key}", self.name(number));
                if let Some(successor) = successors.get(&version) {
                    let why = format!(
                        "{locked} and committed before {} began to replace it",
                        self.name(*successor)
                    );
                    self.order.fix(end(number), snapshot(*successor), Kind::LostUpdate, why);
                }
                let before = holders.entry(version).or_default();
                for other in before.iter() {
                    let options = [(number, *other), (*other, number)]
                        .map(|(one, two)| vec![(end(one), snapshot(two))]);
                    let why = format!("{locked}, and so did {}, and they overlap", self.name(*other));
                    self.order.choose(options.to_vec(), Kind::LostUpdate, why);
                }
                before.push(number);
            }
        }
    }

    /// A conflict must have a cause.
    fn conflicts(&mut self) {
        for (number, effect) in self.effects.iter().enumerate() {
            let loser = &self.history.transactions[number];
            if loser.outcome != Outcome::Conflict {
                continue;
            }
            let met = |other: &usize| {
                let winner = &self.effects[*other];
                let keys = effect.locked.iter().chain(effect.wrote.keys()).chain(&effect.attempted);
                winner.committed && *other != number && keys.into_iter().any(|key| winner.touches(*key))
            };
            let options = (0..self.effects.len())
                .filter(met)
                .map(|other| vec![(snapshot(number), end(other)), (end(other), end(number))]);
            let why = format!(
                "{} failed, though nobody who committed while it ran had changed or locked a row that it had",
                loser.name
            );
            self.order.choose(options.collect(), Kind::SpuriousConflict, why);
        }
    }
}
