//! Values and names, as SQL writes them.

/// A value as a literal that means the same with any value of `standard_conforming_strings`.
pub(super) fn literal(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    if value.contains('\\') {
        text.push('E');
    }
    text.push('\'');
    for c in value.chars() {
        match c {
            '\'' => text.push_str("''"),
            '\\' => text.push_str("\\\\"),
            '\0' => {}
            c => text.push(c),
        }
    }
    text.push('\'');
    text
}

/// The name of a setting: an identifier, or two with a dot. Quoted only if it must be: some names, such
/// as TIME ZONE's, have a grammar of their own.
pub(super) fn setting_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
    if name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(plain)
        && !name.ends_with('.')
    {
        return name.to_owned();
    }
    let part = |part: &str| format!("\"{}\"", part.replace('"', "\"\"").replace('\0', ""));
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// A list of identifiers as PostgreSQL splits the value of a setting: small letters unless quoted.
pub(super) fn split_names(value: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = value.trim_start();
    while !rest.is_empty() {
        let mut name = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (part, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
                name.push_str(part);
                let Some(more) = behind.strip_prefix('"') else {
                    rest = behind;
                    break;
                };
                name.push('"');
                quoted = more;
            }
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest);
        } else {
            let (part, behind) = rest.split_once(',').unwrap_or((rest, ""));
            name = part.trim_end().to_lowercase();
            rest = behind;
        }
        names.push(name);
        rest = rest.trim_start();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_as_postgresql_splits_it() {
        assert_eq!(split_names("\"$user\", Public,\"a\"\"b\" , c"), ["$user", "public", "a\"b", "c"]);
        assert_eq!((split_names(""), split_names("\"\"")), (vec![], vec![String::new()]));
    }

    #[test]
    fn a_value_cannot_leave_its_literal() {
        assert_eq!(literal("a'; DROP TABLE t; --"), "'a''; DROP TABLE t; --'");
        assert_eq!(literal("a\\'b\0"), "E'a\\\\''b'");
        assert_eq!(setting_name("a b\".c"), "\"a b\"\"\".\"c\"");
        assert_eq!(setting_name("dsql.enable_x"), "dsql.enable_x");
    }
}
