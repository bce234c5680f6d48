//! The prepared statements of a session, and which of them its backend has.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::answer::{Answer, Step};
use super::columns::Columns;
use super::scan::{Effect, Flags};
use crate::protocol::split_string;

/// A prepared statement as the client gave it.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) name: Arc<[u8]>,
    /// What follows the name in its Parse, as it goes to a server: the text with its zero byte, and the types of the parameters.
    rest: Arc<[u8]>,
    pub(super) flags: Flags,
    /// What its execution leaves in the session. Most leave nothing.
    pub(super) step: Option<Box<Step>>,
    /// The row description that the client has seen. Only its digest: descriptions may be large, and clients could make many.
    pub(super) columns: OnceLock<Columns>,
    /// The types of the parameters that the client has seen: the body of a ParameterDescription.
    parameters: OnceLock<Box<[u8]>>,
    /// A portal has it alone. Its name and its text are those of the one that was prepared.
    of_portal: bool,
}

impl Statement {
    pub(super) fn new(name: &[u8], rest: Vec<u8>, flags: Flags, step: Option<Box<Step>>) -> Self {
        Self {
            name: name.into(),
            rest: rest.into(),
            flags,
            step,
            columns: OnceLock::new(),
            parameters: OnceLock::new(),
            of_portal: false,
        }
    }

    /// The same, as a portal runs it whose parameter says what it does.
    pub(super) fn that_does(&self, effect: Effect) -> Self {
        Self {
            name: Arc::clone(&self.name),
            rest: Arc::clone(&self.rest),
            flags: Flags::default(),
            step: Some(Box::new(Step { effect, answer: Answer::Pass })),
            columns: OnceLock::new(),
            parameters: OnceLock::new(),
            of_portal: true,
        }
    }

    /// Whether the text of both is kept once.
    pub(super) fn shares_text(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rest, &other.rest)
    }

    /// Where its text is kept.
    pub(super) fn place(&self) -> *const u8 {
        self.rest.as_ptr()
    }

    pub(super) fn text(&self) -> &[u8] {
        split_string(&self.rest).map_or(&[], |(text, _)| text)
    }

    /// How its answers are passed on.
    pub(super) fn answer(&self) -> &Answer {
        self.step.as_deref().map_or(&Answer::Pass, |step| &step.answer)
    }

    /// What follows the name in a Parse. The types are those that the client has seen, if it has: they must not change.
    pub(super) fn parse_rest(&self) -> Vec<u8> {
        let mut rest = self.rest.to_vec();
        if let (Some(types), Some(end)) = (self.parameters.get(), rest.iter().position(|&byte| byte == 0)) {
            rest.truncate(end + 1);
            rest.extend_from_slice(types);
        }
        rest
    }

    /// The client has seen this body of a RowDescription, or an empty one for NoData.
    pub(super) fn saw_columns(&self, body: &[u8]) {
        self.columns.get_or_init(|| Columns::of(body));
    }

    /// How many bytes it takes, roughly. The name is also where it is found.
    pub(super) fn size(&self) -> usize {
        self.size_at_first() + self.parameters.get().map_or(0, |types| types.len())
    }

    /// How many bytes it took, roughly, before the client saw the types of its parameters. That does not change.
    pub(super) fn size_at_first(&self) -> usize {
        OVERHEAD + 2 * self.name.len() + self.rest.len() + self.step_size()
    }

    /// How many of them a portal keeps that has it alone.
    pub(super) fn size_in_portal(&self) -> usize {
        if self.of_portal { OVERHEAD + self.step_size() } else { 0 }
    }

    fn step_size(&self) -> usize {
        self.step.as_deref().map_or(0, |step| text_size(&step.effect))
    }
}

/// How many bytes of texts an effect keeps.
fn text_size(effect: &Effect) -> usize {
    match effect {
        Effect::Set { name, text } => name.len() + text.len(),
        Effect::SetConfig { name, assignment } => name.len() + assignment.text().len(),
        Effect::SetConfigTo { name, .. } => name.len(),
        Effect::SetDefault(text)
        | Effect::SetMinMessagesLocal(text)
        | Effect::LocalDefault(text)
        | Effect::Reset(text)
        | Effect::Role { text: Some(text), .. } => text.len(),
        Effect::Savepoint(name)
        | Effect::Release(name)
        | Effect::RollbackTo(name)
        | Effect::Deallocate(name) => name.len(),
        _ => 0,
    }
}

/// What a statement takes beside its text, roughly.
const OVERHEAD: usize = 200;

/// One name: what the client has under it, and whether the backend has it, too.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub(super) statement: Option<Arc<Statement>>,
    pub(super) on_backend: bool,
    /// The gateway has put it on the backend, and does not know yet whether it is still what the client has seen.
    pub(super) unverified: bool,
    /// The segment of the client's frames that changed it last.
    pub(super) since: u64,
}

impl Slot {
    pub(super) const fn free(since: u64) -> Self {
        Self { statement: None, on_backend: false, unverified: false, since }
    }

    /// How many bytes it takes as one without a statement, roughly, under this name.
    fn spare_size(&self, name: &[u8]) -> usize {
        if self.statement.is_none() { OVERHEAD + name.len() } else { 0 }
    }

    pub(super) const fn is_free(&self) -> bool {
        self.statement.is_none() && !self.on_backend
    }

    /// Whether client and backend differ.
    pub(super) const fn differs(&self) -> bool {
        self.statement.is_some() != self.on_backend
    }
}

/// What a request changes, for the case that the server skips it: the slot as it was before.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) name: Box<[u8]>,
    pub(super) before: Slot,
}

/// All statements, as they will be when everything sent has been answered without an error.
#[derive(Debug, Default)]
pub(super) struct Statements {
    unnamed: Slot,
    named: BTreeMap<Box<[u8]>, Slot>,
    size: usize,
    /// The backend may still have an unnamed one of another session.
    foreign_unnamed: bool,
    /// About how many names are free. They are kept while something is unanswered that changed them.
    free: usize,
    /// How many bytes the names take that have no statement, roughly: free ones, and those that only the backend has.
    spare: usize,
}

static FREE: Slot = Slot::free(0);

impl Statements {
    pub(super) fn get(&self, name: &[u8]) -> &Slot {
        if name.is_empty() { &self.unnamed } else { self.named.get(name).unwrap_or(&FREE) }
    }

    /// Puts `slot` under a name. What was there before.
    pub(super) fn put(&mut self, name: &[u8], slot: Slot) -> Slot {
        self.free += usize::from(slot.is_free());
        self.size += slot.statement.as_ref().map_or(0, |statement| statement.size());
        let before = if name.is_empty() {
            std::mem::replace(&mut self.unnamed, slot)
        } else {
            self.spare += slot.spare_size(name);
            let before = self.named.insert(name.into(), slot);
            self.spare -= before.as_ref().map_or(0, |before| before.spare_size(name));
            before.unwrap_or_default()
        };
        let freed = before.statement.as_ref().map_or(0, |statement| statement.size());
        self.size = self.size.saturating_sub(freed);
        before
    }

    /// There is nothing of this name. Only while nothing is unanswered.
    pub(super) fn forget(&mut self, name: &[u8]) {
        self.put(name, Slot::default());
        if let Some(slot) = self.named.remove(name) {
            self.spare -= slot.spare_size(name);
        }
    }

    pub(super) fn set_on_backend(&mut self, name: &[u8], on_backend: bool, since: u64) -> Slot {
        let mut slot = self.get(name).clone();
        (slot.on_backend, slot.since) = (on_backend, since);
        slot.unverified =
            on_backend && slot.statement.as_ref().is_some_and(|statement| statement.columns.get().is_some());
        self.put(name, slot)
    }

    /// The client has seen this body of a ParameterDescription. Whether it is known from now on: if all statements took more than `limit` then, it
    /// is not kept.
    pub(super) fn saw_parameters(&mut self, statement: &Arc<Statement>, body: &[u8], limit: usize) -> bool {
        // A count of two bytes and four bytes for each: the same in both messages. Without any there is nothing to keep.
        if body.len() <= 2 || statement.parameters.get().is_some() {
            return true;
        }
        if self.size + body.len() > limit {
            return false;
        }
        let is_in_place =
            self.get(&statement.name).statement.as_ref().is_some_and(|own| Arc::ptr_eq(own, statement));
        if statement.parameters.set(body.into()).is_ok() && is_in_place {
            self.size += body.len();
        }
        true
    }

    /// The backend's statement is what the client has seen.
    pub(super) fn verified(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.unnamed.unverified = false;
        } else if let Some(slot) = self.named.get_mut(name) {
            slot.unverified = false;
        }
    }

    /// A backend comes, and may have one without a name from another session. If the client has one itself, its Parse will replace that.
    pub(super) fn meet_unnamed(&mut self, there: bool) {
        self.foreign_unnamed = there;
        self.unnamed.on_backend = there && self.unnamed.statement.is_none();
    }

    /// Everything is answered: names that nobody uses any more are forgotten.
    pub(super) fn tidy(&mut self) {
        if self.free > 0 {
            let spare = &mut self.spare;
            self.named.retain(|name, slot| {
                *spare -= if slot.is_free() { slot.spare_size(name) } else { 0 };
                !slot.is_free()
            });
            self.free = 0;
        }
    }

    fn count_spare(&mut self) {
        self.spare = self.named.iter().map(|(name, slot)| slot.spare_size(name)).sum();
    }

    /// How many bytes the names take that have no statement, roughly.
    pub(super) const fn spare(&self) -> usize {
        self.spare
    }

    /// The names that only the backend has.
    pub(super) fn left_on_backend(&self) -> Vec<Box<[u8]>> {
        let left = self.named.iter().filter(|(_, slot)| slot.statement.is_none() && slot.on_backend);
        left.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.named.len()
    }

    /// Those with a name that the client has and the backend lacks, and when each was changed last.
    pub(super) fn lacking(&self) -> impl Iterator<Item = (u64, Arc<Statement>)> {
        self.named.values().filter(|slot| !slot.on_backend).filter_map(|slot| {
            let statement = slot.statement.as_ref()?;
            Some((slot.since, Arc::clone(statement)))
        })
    }

    /// Whether the client has one.
    pub(super) fn any(&self) -> bool {
        self.unnamed.statement.is_some() || self.named.values().any(|slot| slot.statement.is_some())
    }

    /// How many bytes they take, roughly.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// The client has no named one any more. The backend still may.
    pub(super) fn deallocate_all(&mut self) {
        let unnamed = self.unnamed.statement.as_ref().map_or(0, |statement| statement.size());
        self.named.retain(|_, slot| {
            slot.statement = None;
            slot.on_backend
        });
        self.size = unnamed;
        self.count_spare();
    }

    /// The backend leaves: the names that it has, and whether it has an unnamed one.
    pub(super) fn leave_backend(&mut self) -> (Vec<Box<[u8]>>, bool) {
        let unnamed =
            std::mem::take(&mut self.unnamed.on_backend) || std::mem::take(&mut self.foreign_unnamed);
        let mut names = Vec::new();
        self.named.retain(|name, slot| {
            if std::mem::take(&mut slot.on_backend) {
                names.push(name.clone());
            }
            slot.statement.is_some()
        });
        self.spare = 0;
        (names, unnamed)
    }
}
