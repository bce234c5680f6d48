//! Which relations have changed, for sessions that have read an older catalog.
//!
//! How far OC001 reaches is not known for certain. A session fails once if a statement names a relation that
//! existed when the session read the catalog, and that another session has changed since. A transaction that
//! changes the schema fails if another one has done so since it began, whatever they have changed. Relations
//! that a statement uses without their name, through a view, a function or a cascade, do not count.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// How often the schema has changed.
pub(super) type SchemaVersion = u64;

/// A relation: its schema and its name.
pub(super) type RelationName = (String, String);

/// The names of changed relations, before and after the change.
#[derive(Debug, Default)]
pub(super) struct ChangedRelations {
    pub(super) before: Vec<RelationName>,
    pub(super) after: Vec<RelationName>,
}

#[derive(Debug, Default)]
pub(super) struct SchemaVersions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    version: SchemaVersion,
    /// The relations that have changed since the start. A name stays when its relation is dropped.
    relations: BTreeMap<RelationName, Relation>,
}

#[derive(Debug, Default)]
struct Relation {
    created: SchemaVersion,
    changed: SchemaVersion,
}

/// What an older catalog means for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Nothing that it names has changed.
    Current,
    /// It names a relation that is newer than the catalog, which must be read again for it.
    New,
    /// It names a relation that has changed.
    Stale,
}

impl SchemaVersions {
    pub(super) fn version(&self) -> SchemaVersion {
        self.0.lock().version
    }

    /// Records a change of these relations. Returns the new version.
    ///
    /// Call this before the change is visible, and again after: a session that begins in between has an older
    /// catalog.
    pub(super) fn record(&self, changed: &ChangedRelations) -> SchemaVersion {
        let mut known = self.0.lock();
        known.version += 1;
        let version = known.version;
        for name in &changed.before {
            known.relations.entry(name.clone()).or_default().changed = version;
        }
        for name in changed.after.iter().filter(|name| !changed.before.contains(name)) {
            known.relations.insert(name.clone(), Relation { created: version, changed: version });
        }
        version
    }

    /// What a catalog of this version means for a statement; `names` is whether the statement names a relation.
    pub(super) fn freshness(
        &self,
        version: SchemaVersion,
        names: impl Fn(&RelationName) -> bool,
    ) -> Freshness {
        let known = self.0.lock();
        if known.version == version {
            return Freshness::Current;
        }
        let newer = known.relations.iter().filter(|(_, relation)| relation.changed > version);
        let named =
            newer.filter(|(name, _)| names(name)).map(|(_, relation)| match relation.created > version {
                true => Freshness::New,
                false => Freshness::Stale,
            });
        named.fold(Freshness::Current, |sum, one| if sum == Freshness::Stale { sum } else { one })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<RelationName> {
        names.iter().map(|name| ("public".to_owned(), (*name).to_owned())).collect()
    }

    fn changed(before: &[&str], after: &[&str]) -> ChangedRelations {
        ChangedRelations { before: names(before), after: names(after) }
    }

    #[test]
    fn only_a_known_relation_that_has_changed_is_stale() {
        let schema = SchemaVersions::default();
        let at = |version, name: &str| schema.freshness(version, |known| known.1 == name);
        schema.record(&changed(&[], &["t"]));
        assert_eq!(
            [at(0, "t"), at(1, "t"), at(0, "u")],
            [Freshness::New, Freshness::Current, Freshness::Current]
        );
        schema.record(&changed(&["t", "u"], &["t", "u"]));
        assert_eq!(
            [at(0, "t"), at(1, "t"), at(0, "u")],
            [Freshness::New, Freshness::Stale, Freshness::Stale]
        );
        // Renamed: both names.
        schema.record(&changed(&["t"], &["v"]));
        assert_eq!(
            [at(2, "t"), at(2, "v"), at(2, "u")],
            [Freshness::Stale, Freshness::New, Freshness::Current]
        );
        // A new table with the name of a dropped one.
        schema.record(&changed(&[], &["t"]));
        assert_eq!(at(2, "t"), Freshness::New);
    }
}
