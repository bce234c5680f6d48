//! The variables of this process.

use std::ffi::OsString;

use forebay::Problem;

/// Variables that are text, and what is wrong with the others.
#[derive(Default)]
pub(super) struct Environment {
    pub(super) variables: Vec<(String, String)>,
    pub(super) problems: Vec<Problem>,
}

impl Environment {
    pub(super) fn read() -> Self {
        Self::of(std::env::vars_os())
    }

    /// Other programs' variables may be anything. The gateway's own are text.
    fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => environment.variables.push((name, value)),
                (Ok(name), Err(_)) if is_ours(&name) => environment.problems.push(Problem {
                    setting: name.into(),
                    // It may be a secret.
                    value: "not UTF-8 (its value is not shown)".to_owned(),
                    allowed: "text in UTF-8, or not set".to_owned(),
                }),
                _ => {}
            }
        }
        environment
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }
}

fn is_ours(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "REGION",
        "CLUSTER_USER",
        "PGAPPNAME",
        "PGDATABASE",
        "PGHOSTADDR",
        "PGPORT",
        "PGSSLNEGOTIATION",
        "PGSSLROOTCERT",
        "PGUSER",
    ];
    let begins = ["FOREBAY_", "DSQL_", "CLUSTER_ENDPOINT", "AWS_"].iter().any(|ours| name.starts_with(ours));
    // The path of a file may have any bytes.
    (begins || NAMES.contains(&name)) && name != "FOREBAY_GATEWAY_CONFIG"
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn only_our_own_variables_must_be_text_and_no_value_is_shown() {
        let bytes = |text: &[u8]| OsString::from_vec(text.to_vec());
        let environment = Environment::of([
            (bytes(b"A"), bytes(b"b")),
            (bytes(b"OTHER"), bytes(b"hunter2\xff")),
            (bytes(b"\xff"), bytes(b"b")),
            (bytes(b"DSQL_DESK_TOKEN"), bytes(b"hunter2\xff")),
            (bytes(b"REGION"), bytes(b"\xff")),
            (bytes(b"FOREBAY_GATEWAY_CONFIG"), bytes(b"\xff")),
        ]);
        assert_eq!(environment.variables, [("A".to_owned(), "b".to_owned())]);
        let said: Vec<String> = environment.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["DSQL_DESK_TOKEN", "REGION"].map(|name| format!(
                "{name} is not UTF-8 (its value is not shown), but must be text in UTF-8, or not set"
            ))
        );
    }
}
