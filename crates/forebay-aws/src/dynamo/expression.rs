//! Conditions and changes as DynamoDB's expressions.
//!
//! Every name and every value has a placeholder: names may be reserved words or contain a dot, and neither names nor
//! values may change the meaning of an expression.

use aws_sdk_dynamodb::types::AttributeValue;
use forebay_fleet::{Change, Condition, KEY, Path, Value};

use super::attributes::{Attributes, attribute};

/// The SDK's map of names. Nothing depends on its order.
#[allow(clippy::disallowed_types, reason = "the SDK's own")]
type Names = std::collections::HashMap<String, String>;

/// The expressions of one request, with their placeholders.
#[derive(Debug, Default)]
pub(crate) struct Expressions {
    names: Vec<String>,
    values: Vec<AttributeValue>,
}

impl Expressions {
    /// All of `conditions`; none if there are no conditions.
    pub(crate) fn conditions(&mut self, conditions: &[Condition]) -> Option<String> {
        let all: Vec<String> = conditions.iter().map(|condition| self.condition(condition)).collect();
        (!all.is_empty()).then(|| all.join(" AND "))
    }

    fn condition(&mut self, condition: &Condition) -> String {
        match condition {
            Condition::Exists(path) => format!("attribute_exists({})", self.path(path)),
            Condition::Missing(path) => format!("attribute_not_exists({})", self.path(path)),
            Condition::Equals(path, value) => self.comparison(path, "=", value),
            Condition::AtLeast(path, number) => self.comparison(path, ">=", &Value::Number(*number)),
            Condition::AtMost(path, number) => self.comparison(path, "<=", &Value::Number(*number)),
            Condition::Below(path, number) => self.comparison(path, "<", &Value::Number(*number)),
            // An empty `Any` never holds. DynamoDB has no constant for that.
            Condition::Any(conditions) if conditions.is_empty() => {
                let key = self.name(KEY);
                format!("(attribute_exists({key}) AND attribute_not_exists({key}))")
            }
            // DynamoDB refuses redundant brackets.
            Condition::Any(conditions) if conditions.len() == 1 => self.condition(&conditions[0]),
            Condition::Any(conditions) => {
                let any: Vec<String> = conditions.iter().map(|condition| self.condition(condition)).collect();
                format!("({})", any.join(" OR "))
            }
        }
    }

    fn comparison(&mut self, path: &Path, sign: &str, value: &Value) -> String {
        format!("{} {sign} {}", self.path(path), self.value(attribute(value)))
    }

    /// All of `changes`, by clause; none if there are no changes.
    pub(crate) fn changes(&mut self, changes: &[Change]) -> Option<String> {
        let (mut sets, mut adds, mut removals) = (Vec::new(), Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Set(path, value) => sets.push(self.comparison(path, "=", value)),
                Change::Plus(path, number) => {
                    let (path, more) = (self.path(path), self.value(attribute(&Value::Number(*number))));
                    sets.push(format!("{path} = {path} + {more}"));
                }
                Change::Add(name, number) => {
                    let (name, more) = (self.name(name), self.value(attribute(&Value::Number(*number))));
                    adds.push(format!("{name} {more}"));
                }
                Change::Remove(path) => removals.push(self.path(path)),
            }
        }
        let clauses = [("SET", sets), ("ADD", adds), ("REMOVE", removals)];
        let clauses: Vec<String> = clauses
            .iter()
            .filter(|(_, parts)| !parts.is_empty())
            .map(|(word, parts)| format!("{word} {}", parts.join(", ")))
            .collect();
        (!clauses.is_empty()).then(|| clauses.join(" "))
    }

    /// The string called `name` begins with `prefix`.
    pub(crate) fn begins_with(&mut self, name: &str, prefix: &str) -> String {
        format!("begins_with({}, {})", self.name(name), self.value(AttributeValue::S(prefix.to_owned())))
    }

    fn path(&mut self, path: &Path) -> String {
        let names: Vec<String> = path.names().iter().map(|name| self.name(name)).collect();
        names.join(".")
    }

    /// The placeholder of a name: the same each time.
    fn name(&mut self, name: &str) -> String {
        let place = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        format!("#n{place}")
    }

    fn value(&mut self, value: AttributeValue) -> String {
        self.values.push(value);
        format!(":v{}", self.values.len() - 1)
    }

    /// The values of the placeholders. DynamoDB refuses empty lists.
    pub(crate) fn into_parts(self) -> (Option<Names>, Option<Attributes>) {
        let names: Names =
            self.names.into_iter().enumerate().map(|(place, name)| (format!("#n{place}"), name)).collect();
        let values: Attributes =
            self.values.into_iter().enumerate().map(|(place, value)| (format!(":v{place}"), value)).collect();
        ((!names.is_empty()).then_some(names), (!values.is_empty()).then_some(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_value_is_a_placeholder() {
        let mut expressions = Expressions::default();
        let slots = Path::of("inst").then("a.b-c").then("s");
        let condition = expressions.conditions(&[
            Condition::Equals(slots.clone(), Value::Number(4)),
            Condition::Any(vec![Condition::Missing("free".into()), Condition::Below("free".into(), 9)]),
            Condition::no_item(),
        ]);
        let expected = "#n0.#n1.#n2 = :v0 AND (attribute_not_exists(#n3) OR #n3 < :v1) AND \
                        attribute_not_exists(#n4)";
        assert_eq!(condition.as_deref(), Some(expected));
        let changes = expressions.changes(&[
            Change::Remove("ttl".into()),
            Change::Add("count".into(), 1),
            Change::set(slots, 5),
            Change::plus("free", -1),
        ]);
        let expected = "SET #n0.#n1.#n2 = :v3, #n3 = #n3 + :v4 ADD #n6 :v2 REMOVE #n5";
        assert_eq!(changes.as_deref(), Some(expected));
        let (names, values) = expressions.into_parts();
        assert_eq!(names.unwrap()["#n1"], "a.b-c");
        assert_eq!(values.unwrap()[":v4"], AttributeValue::N("-1".into()));
    }

    #[test]
    fn empty_expressions_are_left_out() {
        let mut expressions = Expressions::default();
        assert_eq!((expressions.conditions(&[]), expressions.changes(&[])), (None, None));
        let (names, values) = expressions.into_parts();
        assert!(names.is_none() && values.is_none());
    }

    #[test]
    fn redundant_brackets_are_left_out() {
        let (mut expressions, a, b) = (Expressions::default(), Condition::no_item(), Condition::an_item());
        let any = Condition::Any(vec![Condition::Any(vec![a, b])]);
        let condition = expressions.conditions(&[any]);
        assert_eq!(condition.as_deref(), Some("(attribute_not_exists(#n0) OR attribute_exists(#n0))"));
    }

    #[test]
    fn an_empty_any_never_holds() {
        let mut expressions = Expressions::default();
        let never = expressions.conditions(&[Condition::Any(Vec::new())]);
        assert_eq!(never.as_deref(), Some("(attribute_exists(#n0) AND attribute_not_exists(#n0))"));
    }
}
