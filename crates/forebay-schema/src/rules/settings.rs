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
    let value = statement.words().last().map_or("", |word| &statement.text()[word.range.clone()]);
    let is_on = ["ON", "TRUE", "YES", "1", "DEFAULT"]
        .iter()
        .any(|on| value.trim_matches('\'').eq_ignore_ascii_case(on));
    if name == "standard_conforming_strings" && statement.key(0) == "SET" && !is_on {
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
    // Without them, somebody else would own what the file creates.
    if ["role", "session_authorization", "authorization"].contains(&name.as_str())
        || statement.key(at + 1) == "AUTHORIZATION"
    {
        return Some(Refusal::new(statement, message, "remove it, and connect as that role"));
    }
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
    fn whose_objects_they_are_is_not_left_out() {
        let fixable = |sql: &str| super::can_be_left_out(&crate::sql::Statement::parse(sql));
        assert!(fixable("SET statement_timeout = 0"));
        for sql in
            ["SET ROLE app", "SET SESSION AUTHORIZATION app", "SET standard_conforming_strings = 'off'"]
        {
            assert_eq!(refusals(sql, Rules::Today).len(), 1, "{sql}");
            assert!(!fixable(sql), "{sql}");
        }
        assert_eq!(refusals("SET standard_conforming_strings = on", Rules::Today), [""; 0]);
    }

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
