//! Functions by what they do to a session. PostgreSQL's own are known; any other may do anything.

use std::sync::LazyLock;

/// What a call of a function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Nothing that outlives the statement.
    Harmless,
    /// It leaves something in the connection that cannot be carried over.
    Pins,
    /// It reads what an earlier statement left in the connection, and pins, too.
    ReadsSequence,
    /// It may change settings.
    Unsure,
    /// It has nothing to do where there are no such locks.
    UnlocksAll,
}

/// Of a name in small letters.
pub(super) fn call(name: &[u8]) -> Call {
    match name {
        b"nextval" | b"setval" | b"setseed" => Call::Pins,
        b"currval" | b"lastval" => Call::ReadsSequence,
        b"pg_advisory_unlock_all" => Call::UnlocksAll,
        _ if name.starts_with(b"pg_advisory_") || name.starts_with(b"pg_try_advisory_") => {
            if name.windows(5).any(|part| part == b"xact_") { Call::Harmless } else { Call::Pins }
        }
        _ if HARMLESS.contains(name) => Call::Harmless,
        _ => Call::Unsure,
    }
}

static HARMLESS: LazyLock<Names> = LazyLock::new(|| Names::new(include_str!("functions.txt")));

/// Names by their hash, in a table with room to spare: a look-up compares one name, nearly always.
struct Names {
    table: Vec<&'static str>,
}

impl Names {
    fn new(text: &'static str) -> Self {
        // What looks like a call and is none: keywords in front of a parenthesis, and types with a length.
        const KEYWORDS: &str = "all and any array as asc between by case cast char character check coalesce conflict cross cube decimal dec \
            default desc distinct else end escape except exists extract filter float following for from full greatest group grouping \
            having ilike in inner insert intersect interval into is isnull join json_array json_object key lateral least left like limit \
            materialized natural nchar not notnull null nullif numeric offset on only or order outer over overlaps partition position preceding \
            precision primary range recursive returning right rollup row rows select set sets similar some substring symmetric table then time \
            timestamp to treat trim union unique update using values varchar varying when where window with within";
        let names = text.split_ascii_whitespace().chain(KEYWORDS.split_ascii_whitespace());
        let mut table = vec![""; SIZE];
        for name in names {
            let mut place = hash(name.as_bytes());
            while !table[place].is_empty() && table[place] != name {
                place = (place + 1) % SIZE;
            }
            table[place] = name;
        }
        Self { table }
    }

    fn contains(&self, name: &[u8]) -> bool {
        let mut place = hash(name);
        while !self.table[place].is_empty() {
            if self.table[place].as_bytes() == name {
                return true;
            }
            place = (place + 1) % SIZE;
        }
        false
    }
}

/// A power of two, three times as many as there are names.
const SIZE: usize = 8192;

fn hash(name: &[u8]) -> usize {
    let hash =
        name.iter().fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ hash >> 15) as usize % SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_of_postgresql_are_known() {
        for name in [
            "count",
            "now",
            "pg_backend_pid",
            "in",
            "varchar",
            "json_build_object",
            "pg_advisory_xact_lock",
            "version",
        ] {
            assert_eq!(call(name.as_bytes()), Call::Harmless, "{name}");
        }
        for name in ["set_config", "my_function", "query_to_xml", "lo_create", "dblink", ""] {
            assert_eq!(call(name.as_bytes()), Call::Unsure, "{name}");
        }
        assert_eq!(call(b"lastval"), Call::ReadsSequence);
        assert_eq!(call(b"pg_try_advisory_lock"), Call::Pins);
    }
}
