//! Settings of a session.

use super::{Refusal, Rules};
use crate::sql::Statement;

/// Those that a session may change.
const SETTABLE: [&str; 10] = [
    "application_name",
    "bytea_output",
    "client_encoding",
    "datestyle",
    "disable_sync_create_index",
    "extra_float_digits",
    "intervalstyle",
    "search_path",
    "standard_conforming_strings",
    "timezone",
];

pub(super) fn check(statement: &Statement, rules: Rules) -> Option<Refusal> {
    if statement.key(0) == "SELECT" {
        return None;
    }
    let mut at = 1;
    while ["SESSION", "LOCAL"].contains(&statement.key(at)) && statement.key(at + 1) != "AUTHORIZATION" {
        at += 1;
    }
    let name = match (statement.key(at), statement.key(at + 1)) {
        ("CHARACTERISTICS", _) => return super::transactions::isolation(statement),
        ("ALL", _) if rules == Rules::Spec => {
            return Some(Refusal::new(statement, "RESET ALL not supported", "remove it").fixable());
        }
        ("TIME", "ZONE") | ("NAMES", _) | ("ALL", _) => return None,
        ("TRANSACTION", _) => match super::transactions::isolation(statement) {
            Some(refusal) if statement.words().iter().any(|word| word.is("SERIALIZABLE")) => {
                return Some(refusal);
            }
            _ => "TRANSACTION".to_owned(),
        },
        _ => statement.words().get(at).and_then(|word| statement.name(word))?,
    };
    if name == "standard_conforming_strings" && statement.words().last().is_some_and(|word| word.is("OFF")) {
        let message = "strings would be read otherwise from here on";
        return Some(Refusal::new(
            statement,
            message,
            "remove it, and write strings with backslashes as E'...'",
        ));
    }
    // Those of extensions and of the service have a dot.
    let is_known = SETTABLE.contains(&name.as_str()) || name.starts_with("enable_") || name == "dsql";
    if is_known {
        return None;
    }
    let message = format!("setting configuration parameter \"{name}\" not supported");
    Some(Refusal::new(statement, message, "remove it").fixable())
}

/// Whether a statement is a setting that can be left out.
pub(crate) fn can_be_left_out(statement: &Statement) -> bool {
    check(statement, Rules::Spec).is_some_and(|refusal| refusal.fixable)
}

#[cfg(test)]
mod tests {
    use crate::rules::{Rules, refusals};

    #[test]
    fn few_settings_can_be_changed() {
        for fine in [
            "SET search_path = a, b",
            "SET SESSION TIME ZONE 'UTC'",
            "SET LOCAL timezone TO 'UTC'",
            "RESET ALL",
            "SET enable_seqscan = off",
            "SET dsql.enable_batched_nestloop = on",
        ] {
            assert_eq!(refusals(fine, Rules::Today), [""; 0], "{fine}");
        }
        assert_eq!(
            refusals("SET statement_timeout = 0; SET TRANSACTION READ ONLY", Rules::Today),
            [
                "setting configuration parameter \"statement_timeout\" not supported",
                "setting configuration parameter \"TRANSACTION\" not supported"
            ]
        );
    }
}
