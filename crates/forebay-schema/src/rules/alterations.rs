//! ALTER TABLE.

use super::types::Type;
use super::{Known, Refusal, Rules, find, has, tables, types};
use crate::definition::is_exclusion;
use crate::sql::{Statement, Word};

/// Words that begin a constraint of a column.
const CONSTRAINTS: [&str; 7] = ["CHECK", "DEFAULT", "GENERATED", "NOT", "UNIQUE", "PRIMARY", "REFERENCES"];
/// Words that begin a constraint of a table.
const OF_TABLE: [&str; 5] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"];

/// Actions that are refused, the rest of the server's message, and what to do instead.
const ACTIONS: [(&[&str], &str, &str); 6] = [
    (&["ENABLE", "ROW", "LEVEL"], "ENABLE ROW SECURITY", "there is no row security: use views and grants"),
    (&["REPLICA", "IDENTITY"], "REPLICA IDENTITY", "remove it: there is no logical replication"),
    (&["SET", "LOGGED"], "SET LOGGED", "remove it"),
    (&["SET", "UNLOGGED"], "SET UNLOGGED", "remove it"),
    (&["SET", "WITHOUT", "CLUSTER"], "SET WITHOUT CLUSTER", "remove it"),
    (&["SET", "("], "SET", "remove it: storage is the service's"),
];

pub(super) fn check(statement: &Statement, rules: Rules, known: &Known) -> Vec<Refusal> {
    let is_async = statement.key(2) == "ASYNC";
    let mut refusals = Vec::new();
    for action in actions(statement) {
        refusals.extend(check_action(statement, action, is_async, rules, known));
    }
    refusals
}

/// Remembers the types of columns that are added.
pub(super) fn learn(statement: &Statement, known: &mut Known) {
    let Some(table) = table(statement) else { return };
    for action in actions(statement) {
        if let Some([name, rest @ ..]) = added_column(action)
            && let (Some(name), Some(kind)) = (statement.name(name), Type::read(statement, rest))
        {
            known.tables.entry(table.clone()).or_default().insert(name, kind.full_name().to_owned());
        }
    }
}

/// Where the name of the table ends.
fn name_end(statement: &Statement) -> usize {
    let before = ["IF", "EXISTS", "ONLY", "ASYNC"];
    let words = statement.words();
    let mut at = (2..words.len()).find(|at| !before.contains(&statement.key(*at))).unwrap_or(words.len());
    while statement.key(at + 1) == "." {
        at += 2;
    }
    at
}

fn table(statement: &Statement) -> Option<String> {
    statement.name(statement.words().get(name_end(statement))?)
}

/// The actions, which commas separate.
fn actions(statement: &Statement) -> impl Iterator<Item = &[Word]> {
    let words = statement.words();
    let rest = words.get(name_end(statement) + 1..).unwrap_or_default();
    rest.split(|word| word.depth == 0 && word.is(",")).filter(|action| !action.is_empty())
}

/// The column that an action adds: its name and what follows.
fn added_column(action: &[Word]) -> Option<&[Word]> {
    let [add, rest @ ..] = action else { return None };
    if !add.is("ADD") || rest.first().is_some_and(|word| OF_TABLE.contains(&word.key())) || is_exclusion(rest)
    {
        return None;
    }
    let skip = ["COLUMN", "IF", "NOT", "EXISTS"];
    let at = rest.iter().position(|word| !skip.contains(&word.key()))?;
    Some(&rest[at..])
}

fn check_action(
    statement: &Statement,
    action: &[Word],
    is_async: bool,
    rules: Rules,
    known: &Known,
) -> Vec<Refusal> {
    let place = &action[0];
    let refuse =
        |message: String, remedy: &str| vec![Refusal::new(statement, message, remedy).at(statement, place)];
    let unsupported =
        |what: &str, remedy: &str| refuse(format!("unsupported ALTER TABLE {what} statement"), remedy);
    if let Some(column) = added_column(action) {
        return add_column(statement, column, rules, known);
    }
    if place.is("ADD") {
        // The constraint can come later, for rows that are new.
        if !has(action, &["NOT", "VALID"]) && !has(action, &["USING", "INDEX"]) {
            let remedy = match () {
                () if has(action, &["UNIQUE"]) => {
                    "CREATE UNIQUE INDEX ASYNC, then ADD CONSTRAINT ... UNIQUE USING INDEX; or write it in CREATE TABLE"
                }
                () if has(action, &["PRIMARY", "KEY"]) => {
                    "write it in CREATE TABLE: a primary key is permanent"
                }
                () => {
                    "write it in CREATE TABLE, or add NOT VALID and then ALTER TABLE ASYNC ... VALIDATE CONSTRAINT"
                }
            };
            return unsupported("ADD CONSTRAINT", remedy);
        }
        return tables::later(statement, action, rules).into_iter().collect();
    }
    if has(action, &["VALIDATE", "CONSTRAINT"]) && !is_async {
        return unsupported("VALIDATE CONSTRAINT", "write ALTER TABLE ASYNC ... VALIDATE CONSTRAINT");
    }
    for (keys, what, remedy) in ACTIONS {
        if has(action, keys) {
            return unsupported(what, remedy);
        }
    }
    match place.key() {
        "ALTER" => alter_column(statement, action, rules),
        "DROP" if rules == Rules::Spec => match action.get(1).map_or("", Word::key) {
            "CONSTRAINT" => unsupported("DROP CONSTRAINT", "leave it, or create the table again without it"),
            _ => unsupported("DROP COLUMN", "leave it, or create the table again without it"),
        },
        _ => Vec::new(),
    }
}

fn add_column(statement: &Statement, column: &[Word], rules: Rules, known: &Known) -> Vec<Refusal> {
    let [name, rest @ ..] = column else { return Vec::new() };
    let kind = Type::read(statement, rest);
    let is_serial = kind.as_ref().is_some_and(|kind| types::SERIALS.contains(&kind.full_name()));
    let begins = |pair: &&[Word]| {
        CONSTRAINTS.contains(&pair[1].key()) && !pair[0].is("STORAGE") && pair[1].depth == name.depth
    };
    if let Some(pair) = column.windows(2).find(begins).filter(|_| !is_serial) {
        let message = "ALTER TABLE ADD COLUMN with constraint not supported";
        let remedy = match pair[1].key() {
            "DEFAULT" => {
                "ADD COLUMN without it, then ALTER COLUMN ... SET DEFAULT, then UPDATE the rows that are there"
            }
            "NOT" => {
                "ADD COLUMN without it; NOT NULL is possible only in CREATE TABLE, or as CHECK (... IS NOT NULL) NOT VALID"
            }
            _ => "ADD COLUMN without it; add a constraint NOT VALID, or a unique index, afterwards",
        };
        return vec![Refusal::new(statement, message, remedy).at(statement, &pair[1])];
    }
    let mut refusals: Vec<Refusal> = tables::later(statement, column, rules).into_iter().collect();
    refusals.extend(kind.and_then(|kind| types::check(statement, name, &kind, rules, known)));
    refusals
}

fn alter_column(statement: &Statement, action: &[Word], rules: Rules) -> Vec<Refusal> {
    // The name may be that of a keyword.
    let change: Vec<&str> =
        action[1..].iter().map(Word::key).skip_while(|key| *key == "COLUMN").skip(1).take(3).collect();
    let (what, remedy) = match change[..] {
        ["TYPE", ..] | ["SET", "DATA", ..] => {
            ("SET DATA TYPE", "add a column of the new type, copy the values, and use that one")
        }
        ["SET", "NOT", ..] => (
            "SET NOT NULL",
            "add CHECK (... IS NOT NULL) NOT VALID, and validate it; or write NOT NULL in CREATE TABLE",
        ),
        ["SET", "STATISTICS", ..] => ("SET STATISTICS", "remove it"),
        ["SET", "COMPRESSION", ..] => ("SET COMPRESSION", "remove it"),
        ["ADD", "GENERATED", ..] => {
            // The type of the column is not in the statement.
            let refusal = tables::identity(statement, action, &Type::bigint(), rules);
            return refusal.or_else(|| tables::later(statement, action, rules)).into_iter().collect();
        }
        _ => return Vec::new(),
    };
    let message = format!("unsupported ALTER TABLE ALTER COLUMN ... {what} statement");
    let word = find(action, &change[..1]).unwrap_or(&action[0]);
    vec![Refusal::new(statement, message, remedy).at(statement, word)]
}

#[cfg(test)]
mod tests {
    use crate::rules::{Rules, refusals};

    #[test]
    fn changes_are_refused_for_what_they_are() {
        let constrained = "ALTER TABLE ADD COLUMN with constraint not supported";
        let constraint = "unsupported ALTER TABLE ADD CONSTRAINT statement";
        for (sql, message) in [
            ("ALTER TABLE t ADD COLUMN a int DEFAULT 1", constrained),
            ("ALTER TABLE t ADD a int NOT NULL", constrained),
            ("ALTER TABLE IF EXISTS ONLY s.t ADD COLUMN IF NOT EXISTS a int REFERENCES u", constrained),
            ("ALTER TABLE t ADD COLUMN a serial", "type \"serial\" does not exist"),
            ("ALTER TABLE t ADD COLUMN a text[]", "datatype text[] not supported"),
            ("ALTER TABLE t ADD PRIMARY KEY (a)", constraint),
            ("ALTER TABLE t ADD a int, ADD CHECK (a > 0)", constraint),
            ("ALTER TABLE t VALIDATE CONSTRAINT c", "unsupported ALTER TABLE VALIDATE CONSTRAINT statement"),
            (
                "ALTER TABLE alter ALTER c TYPE text",
                "unsupported ALTER TABLE ALTER COLUMN ... SET DATA TYPE statement",
            ),
            (
                "ALTER TABLE t ALTER COLUMN c SET NOT NULL",
                "unsupported ALTER TABLE ALTER COLUMN ... SET NOT NULL statement",
            ),
            ("ALTER TABLE t SET (fillfactor = 70)", "unsupported ALTER TABLE SET statement"),
            (
                "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
                "unsupported ALTER TABLE ENABLE ROW SECURITY statement",
            ),
        ] {
            assert_eq!(refusals(sql, Rules::Today), [message], "{sql}");
        }
        for fine in [
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS c int",
            "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0) NOT VALID",
            "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES t (id) NOT VALID, ADD COLUMN b int",
            "ALTER TABLE t ADD COLUMN c text STORAGE DEFAULT, ADD d int",
            "ALTER TABLE t ADD COLUMN generated int",
            "ALTER TABLE t ADD exclude boolean",
            "ALTER TABLE t ALTER COLUMN type SET DEFAULT 'a'",
            "ALTER TABLE t ALTER type SET DEFAULT 'a'",
            "ALTER TABLE t ALTER id ADD GENERATED ALWAYS AS IDENTITY (CACHE 1)",
            "ALTER TABLE t ADD CONSTRAINT u UNIQUE USING INDEX u",
            "ALTER TABLE ASYNC t VALIDATE CONSTRAINT c",
            "ALTER TABLE t DROP COLUMN a, RENAME b TO c",
            "ALTER TABLE t ADD COLUMN a numeric(10, 2)",
        ] {
            assert_eq!(refusals(fine, Rules::Today), [""; 0], "{fine}");
        }
        assert_eq!(
            refusals("ALTER TABLE t DROP COLUMN a", Rules::Spec),
            ["unsupported ALTER TABLE DROP COLUMN statement"]
        );
    }
}
