//! Conversion of items to DynamoDB's attributes and back.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use forebay_fleet::{Item, KEY, Value};

/// The SDK's map of attributes. Nothing depends on its order.
#[allow(clippy::disallowed_types, reason = "the SDK's own")]
pub(crate) type Attributes = std::collections::HashMap<String, AttributeValue>;

/// The key of an item.
pub(crate) fn key(key: &str) -> Attributes {
    [(KEY.to_owned(), AttributeValue::S(key.to_owned()))].into()
}

/// An item with its key.
pub(crate) fn whole(its_key: &str, item: &Item) -> Attributes {
    let mut whole = key(its_key);
    whole.extend(item.iter().map(|(name, value)| (name.to_owned(), attribute(value))));
    whole
}

/// An item without its key; none if there is no item.
pub(crate) fn item(attributes: Attributes) -> Option<Item> {
    keyed(attributes).map(|(_, item)| item)
}

/// An item and its key; none if there is no item.
pub(crate) fn keyed(mut attributes: Attributes) -> Option<(String, Item)> {
    let Some(AttributeValue::S(key)) = attributes.remove(KEY) else { return None };
    Some((key, values(attributes).collect()))
}

/// A value as an attribute.
pub(crate) fn attribute(value: &Value) -> AttributeValue {
    match value {
        Value::Text(text) => AttributeValue::S(text.clone()),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::Map(map) => {
            AttributeValue::M(map.iter().map(|(name, value)| (name.clone(), attribute(value))).collect())
        }
    }
}

/// An attribute as a value; none for other types and for fractions.
fn value(attribute: AttributeValue) -> Option<Value> {
    match attribute {
        AttributeValue::S(text) => Some(Value::Text(text)),
        AttributeValue::N(number) => number.parse().ok().map(Value::Number),
        AttributeValue::M(map) => Some(Value::Map(values(map).collect::<BTreeMap<_, _>>())),
        _ => None,
    }
}

fn values(attributes: Attributes) -> impl Iterator<Item = (String, Value)> {
    attributes.into_iter().filter_map(|(name, attribute)| Some((name, value(attribute)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_survive_a_round_trip() {
        let entry = Value::Map([("s".to_owned(), Value::Number(-4))].into());
        let nested = Value::Map([("a.b".to_owned(), entry)].into());
        let whole_item =
            Item::new().with("free", i64::MAX).with("lost", i64::MIN).with("name", "").with("inst", nested);
        assert_eq!(keyed(whole("x", &whole_item)), Some(("x".to_owned(), whole_item.clone())));
        assert_eq!(item(whole("x", &whole_item)), Some(whole_item));
        assert_eq!(item(Attributes::new()), None);
    }

    #[test]
    fn values_of_other_types_are_left_out() {
        let mut attributes = key("x");
        attributes.insert("flag".into(), AttributeValue::Bool(true));
        attributes.insert("half".into(), AttributeValue::N("0.5".into()));
        attributes.insert("list".into(), AttributeValue::L(Vec::new()));
        attributes.insert("whole".into(), AttributeValue::N("7".into()));
        assert_eq!(item(attributes), Some(Item::new().with("whole", 7)));
    }
}
