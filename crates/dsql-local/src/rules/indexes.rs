//! What the service refuses in index definitions.

use super::clauses::{depths, outside, refuse};
use crate::config::Rules;
use crate::error::SqlError;
use crate::statement::has;

/// `CREATE [UNIQUE] INDEX ...`.
pub(super) fn check(tokens: &[String], rules: Rules) -> Result<(), SqlError> {
    let head = tokens.iter().position(|token| token == "INDEX").unwrap_or(1);
    match tokens.get(head + 1).map(String::as_str) {
        Some("ASYNC") => {}
        Some("CONCURRENTLY") => return refuse("CONCURRENTLY not supported for CREATE INDEX"),
        _ => return refuse("unsupported mode. please use CREATE INDEX ASYNC."),
    }
    if outside(tokens, "USING") {
        return refuse("USING not supported for CREATE INDEX");
    }
    // These are reserved words, so no column has such a name without quotes.
    if has(tokens, &["ASC"]) || has(tokens, &["DESC"]) {
        return refuse("specifying sort order not supported for index keys");
    }
    if rules == Rules::Spec && outside(tokens, "WHERE") {
        return refuse("WHERE not supported for CREATE INDEX");
    }
    if rules == Rules::Spec && depths(tokens).any(|(_, depth)| depth > 1) {
        return refuse("expressions not supported for index keys");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Rules;
    use crate::rules::refusal_by;

    #[test]
    fn an_index_is_plain_and_built_in_the_background() {
        let today = |sql| refusal_by(Rules::Today, sql);
        let spec = |sql| refusal_by(Rules::Spec, sql);
        let mode = Some("0A000: unsupported mode. please use CREATE INDEX ASYNC.".to_owned());
        assert_eq!(today("CREATE UNIQUE INDEX i ON t (v)"), mode);
        assert_eq!(today("CREATE INDEX \"async\" ON t (v)"), mode);
        for fine in
            ["CREATE INDEX ASYNC ON t (v)", "CREATE UNIQUE INDEX ASYNC i ON t (v NULLS FIRST) INCLUDE (w)"]
        {
            assert_eq!((today(fine), spec(fine)), (None, None), "{fine}");
        }
        for newer in ["CREATE INDEX ASYNC ON t ((lower(v)))", "CREATE INDEX ASYNC ON t (v) WHERE v > 1"] {
            assert_eq!(today(newer), None, "{newer}");
            assert!(spec(newer).is_some(), "{newer}");
        }
    }
}
