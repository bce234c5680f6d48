//! Conditions and changes: the subset of DynamoDB's expressions that this crate needs.

use crate::item::{Item, Path, Value};

/// A condition on an item. Only [`Missing`](Self::Missing) holds for a missing value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `attribute_exists(path)`.
    Exists(Path),
    /// `attribute_not_exists(path)`; also holds if there is no item.
    Missing(Path),
    /// `path = value`.
    Equals(Path, Value),
    /// `path >= number`.
    AtLeast(Path, i64),
    /// `path <= number`.
    AtMost(Path, i64),
    /// `path < number`.
    Below(Path, i64),
    /// At least one of them.
    Any(Vec<Condition>),
}

impl Condition {
    /// There is no item with this key.
    #[must_use]
    pub fn no_item() -> Self {
        Self::Missing(Path::of(KEY))
    }

    /// There is an item with this key.
    #[must_use]
    pub fn an_item() -> Self {
        Self::Exists(Path::of(KEY))
    }

    /// Whether the condition holds for `item`.
    #[must_use]
    pub fn holds(&self, item: Option<&Item>) -> bool {
        let value = |path: &Path| item.and_then(|item| item.at(path));
        let number = |path: &Path| value(path).and_then(Value::as_number);
        match self {
            Self::Exists(path) if path.names() == [KEY] => item.is_some(),
            Self::Missing(path) if path.names() == [KEY] => item.is_none(),
            Self::Exists(path) => value(path).is_some(),
            Self::Missing(path) => value(path).is_none(),
            Self::Equals(path, wanted) => value(path) == Some(wanted),
            Self::AtLeast(path, least) => number(path).is_some_and(|number| number >= *least),
            Self::AtMost(path, most) => number(path).is_some_and(|number| number <= *most),
            Self::Below(path, bound) => number(path).is_some_and(|number| number < *bound),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.holds(item)),
        }
    }
}

/// The name of the partition key.
pub const KEY: &str = "pk";

/// A change of one value. All changes of an update see the item before the update, and no two change the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `SET path = value`. The parent must exist.
    Set(Path, Value),
    /// `SET path = path + number`. The value must exist.
    Plus(Path, i64),
    /// `ADD name number`. A missing value counts as zero.
    Add(String, i64),
    /// `REMOVE path`.
    Remove(Path),
}

impl Change {
    /// Sets the value at `path`.
    pub fn set(path: impl Into<Path>, value: impl Into<Value>) -> Self {
        Self::Set(path.into(), value.into())
    }

    /// Adds to the number at `path`.
    pub fn plus(path: impl Into<Path>, number: i64) -> Self {
        Self::Plus(path.into(), number)
    }
}

/// Applies `changes` to `item`.
///
/// # Errors
/// The first change that DynamoDB would refuse.
#[cfg(any(test, feature = "test-util"))]
pub(crate) fn apply(item: &Item, changes: &[Change]) -> Result<Item, String> {
    let mut changed = item.clone();
    change(&mut changed, changes)?;
    Ok(changed)
}

/// Makes `changes` to `item` itself: all of them, or none if one is wrong.
///
/// # Errors
/// As for [`apply`].
#[cfg(any(test, feature = "test-util"))]
pub(crate) fn change(item: &mut Item, changes: &[Change]) -> Result<(), String> {
    let number_at = |path: &Path| item.at(path).and_then(Value::as_number);
    let mut values = Vec::with_capacity(changes.len());
    for change in changes {
        let (path, value) = match change {
            Change::Set(path, value) => (path.clone(), Some(Some(value.clone()))),
            Change::Plus(path, more) => {
                let sum = number_at(path).and_then(|number| number.checked_add(*more));
                (path.clone(), sum.map(|sum| Some(Value::Number(sum))))
            }
            Change::Add(name, more) => {
                let path = Path::of(name);
                let before = if item.at(&path).is_none() { Some(0) } else { number_at(&path) };
                let sum = before.and_then(|number| number.checked_add(*more));
                (path, sum.map(|sum| Some(Value::Number(sum))))
            }
            Change::Remove(path) => (path.clone(), Some(None)),
        };
        match value.filter(|_| item.has_parent(&path)) {
            Some(value) => values.push((path, value)),
            None => return Err(format!("{change:?} does not match the item")),
        }
    }
    for (path, value) in values {
        match value {
            Some(value) => item.put(&path, value),
            None => item.remove(&path),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_holds_for_missing_values() {
        let path = Path::of("free");
        let others = [
            Condition::Exists(path.clone()),
            Condition::Equals(path.clone(), Value::Number(0)),
            Condition::AtLeast(path.clone(), i64::MIN),
            Condition::AtMost(path.clone(), i64::MAX),
            Condition::Below(path.clone(), i64::MAX),
            Condition::Any(Vec::new()),
        ];
        for item in [None, Some(&Item::new())] {
            assert!(Condition::Missing(path.clone()).holds(item));
            assert!(others.iter().all(|condition| !condition.holds(item)));
        }
        assert!(Condition::no_item().holds(None) && !Condition::no_item().holds(Some(&Item::new())));
        assert!(Condition::an_item().holds(Some(&Item::new())) && !Condition::an_item().holds(None));
    }

    #[test]
    fn changes_see_the_item_as_it_was() {
        let item = Item::new().with("free", 3);
        let changed = apply(&item, &[Change::set("free", 10), Change::Add("joins".into(), 2)]).unwrap();
        assert_eq!((changed.number("free"), changed.number("joins")), (Some(10), Some(2)));
        let changed = apply(&item, &[Change::plus("free", -1)]).unwrap();
        assert_eq!(changed.number("free"), Some(2));
    }

    #[test]
    fn changes_that_do_not_match_the_item_are_refused() {
        let item = Item::new().with("name", "x");
        let nested = Path::of("inst").then("a");
        for change in [
            Change::plus("free", 1),
            Change::plus("name", 1),
            Change::Add("name".into(), 1),
            Change::Set(nested.clone(), Value::Number(1)),
            Change::Remove(nested),
        ] {
            assert!(apply(&item, &[change]).is_err());
        }
    }
}
