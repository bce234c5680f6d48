//! The items of a table, and paths to values inside them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One value of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Values by name.
    Map(BTreeMap<String, Value>),
}

impl Value {
    /// The number, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The map, if it is one.
    #[must_use]
    pub fn as_map(&self) -> Option<&BTreeMap<String, Value>> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Its size in bytes, as DynamoDB counts it.
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Number(number) => number_size(*number),
            // Three bytes per map and one per value.
            Self::Map(map) => {
                3 + map.iter().map(|(name, value)| name.len() + value.size() + 1).sum::<usize>()
            }
        }
    }
}

/// One byte per two significant digits, one more, and one for a sign.
fn number_size(number: i64) -> usize {
    let mut significant = number.unsigned_abs();
    while significant >= 10 && significant.is_multiple_of(10) {
        significant /= 10;
    }
    let digits = significant.checked_ilog10().unwrap_or(0) as usize + 1;
    digits.div_ceil(2) + 1 + usize::from(number < 0)
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// An item without its key: values by name, in order. Clones share the values until one is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item(Arc<BTreeMap<String, Value>>);

impl Item {
    /// An item without values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// This item with one more value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        Arc::make_mut(&mut self.0).insert(name.to_owned(), value.into());
        self
    }

    /// The value at `path`.
    #[must_use]
    pub fn at(&self, path: &Path) -> Option<&Value> {
        let (first, rest) = path.0.split_first()?;
        rest.iter().try_fold(self.0.get(first)?, |value, name| value.as_map()?.get(name))
    }

    /// The number called `name`.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_number()
    }

    /// The string called `name`.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_text()
    }

    /// The map called `name`.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&BTreeMap<String, Value>> {
        self.0.get(name)?.as_map()
    }

    /// Its values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Its size in bytes with this key, as DynamoDB counts it.
    #[must_use]
    pub fn size(&self, key: &str) -> usize {
        let values = self.0.iter().map(|(name, value)| name.len() + value.size());
        "pk".len() + key.len() + values.sum::<usize>()
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Item {
    /// Whether a value can be put at `path`: each parent exists and is a map.
    pub(crate) fn has_parent(&self, path: &Path) -> bool {
        let Some((_, way)) = path.0.split_last() else { return false };
        let Some((first, rest)) = way.split_first() else { return true };
        let found = rest.iter().try_fold(self.0.get(first), |value, name| Some(value?.as_map()?.get(name)));
        found.flatten().is_some_and(|value| value.as_map().is_some())
    }

    /// Sets the value at `path`. Returns false if a parent is missing or not a map.
    pub(crate) fn put(&mut self, path: &Path, value: Value) -> bool {
        self.parent(path).map(|(map, name)| map.insert(name.to_owned(), value)).is_some()
    }

    /// Removes the value at `path`. Returns false if a parent is missing or not a map.
    pub(crate) fn remove(&mut self, path: &Path) -> bool {
        self.parent(path).map(|(map, name)| map.remove(name)).is_some()
    }

    fn parent<'a>(&mut self, path: &'a Path) -> Option<(&mut BTreeMap<String, Value>, &'a str)> {
        let (last, parents) = path.0.split_last()?;
        let mut map = Arc::make_mut(&mut self.0);
        for name in parents {
            match map.get_mut(name)? {
                Value::Map(inner) => map = inner,
                _ => return None,
            }
        }
        Some((map, last))
    }
}

impl FromIterator<(String, Value)> for Item {
    fn from_iter<T: IntoIterator<Item = (String, Value)>>(values: T) -> Self {
        Self(Arc::new(values.into_iter().collect()))
    }
}

/// The path to a value: the name of an attribute, then names inside maps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<String>);

impl Path {
    /// The attribute called `name`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    /// The value called `name` inside the map at this path.
    #[must_use]
    pub fn then(mut self, name: &str) -> Self {
        self.0.push(name.to_owned());
        self
    }

    /// The names of the path. A table must escape each: `free`, `count` and `ttl` are reserved words in DynamoDB, and
    /// the name of an instance may contain a dot.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl From<&str> for Path {
    fn from(name: &str) -> Self {
        Self::of(name)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested() -> Item {
        let inner = BTreeMap::from([("slots".to_owned(), Value::Number(5))]);
        let inst = BTreeMap::from([("a.b".to_owned(), Value::Map(inner))]);
        Item::new().with("free", 7).with("inst", Value::Map(inst))
    }

    #[test]
    fn paths_lead_into_maps_only() {
        let mut item = nested();
        let slots = Path::of("inst").then("a.b").then("slots");
        assert_eq!(item.at(&slots).and_then(Value::as_number), Some(5));
        assert!(item.put(&slots, Value::Number(6)));
        assert_eq!(item.at(&slots).and_then(Value::as_number), Some(6));
        assert!(!item.put(&Path::of("free").then("x"), Value::Number(1)));
        assert!(!item.put(&Path::of("inst").then("no").then("slots"), Value::Number(1)));
        assert!(item.remove(&Path::of("inst").then("a.b")));
        assert_eq!(item.at(&slots), None);
    }

    #[test]
    fn sizes_are_as_dynamodb_documents_them() {
        assert_eq!([0, 7, 42, 100, 123, -5, 1_767_225_600].map(number_size), [2, 2, 2, 2, 3, 3, 5]);
        // pk + key, free + 2, inst + map (3) + name + its map (3) and overhead (1) + slots + 2 and overhead (1).
        assert_eq!(nested().size("key"), 5 + 6 + 4 + 3 + (3 + 3 + 1) + (5 + 2 + 1));
    }
}
