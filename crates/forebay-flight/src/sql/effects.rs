//! What a statement leaves in its session: settings, temporary tables, locks, an open transaction.

use super::vocabulary::{NOT_ATOMIC, READ_ONLY_PRAGMAS, SESSION_FUNCTIONS, SILENT, STATELESS, VERBS};
use super::words::Word;
use super::{first_word, is_any, is_in};

pub(super) fn alters_session(statement: &[Word<'_>]) -> bool {
    let Some(first) = first_word(statement) else { return true };
    let has = |names: &[&str]| keywords(statement).any(|word| is_any(word, names));
    if into_temporary(statement, first) || calls_session_function(statement) || sets_variable(statement) {
        return true;
    }
    // CREATE may come after WITH.
    if is_any(first, &["create", "with"]) && has(&["create"]) {
        return has(&["temp", "temporary", "secret", "macro"]) || names_temporary(statement);
    }
    if is_any(first, &["alter"]) {
        return has(&["session", "system", "temp"]) || names_temporary(statement);
    }
    if is_any(first, &["start"]) {
        return !has(&["transaction"]);
    }
    if is_any(first, &["explain"]) && has(&["analyze", "analyse"]) {
        return alters_session(explained(statement));
    }
    if is_any(first, &["pragma"]) {
        return !is_read_only_pragma(statement);
    }
    !is_any(first, STATELESS)
}

/// Whether it changes more of the session than its objects and its current schema.
pub(super) fn alters_settings(statement: &[Word<'_>]) -> bool {
    let Some(first) = first_word(statement) else { return true };
    let has = |names: &[&str]| keywords(statement).any(|word| is_any(word, names));
    // A reset drops tables and views. Looking for other temporary objects takes long, and they are rare.
    let mut after_create = keywords(statement).skip_while(|word| !is_any(word, &["create"])).skip(1);
    let what = after_create.find(|word| !is_any(word, &["or", "replace", "temp", "temporary"]));
    let is_other = what.is_some_and(|what| is_any(what, &["macro", "function", "sequence", "type"]))
        && (has(&["temp", "temporary"]) || names_temporary(statement));
    let creates = is_any(first, &["create", "with"]) && has(&["create"]) && !has(&["secret"]) && !is_other;
    let alters_object = is_any(first, &["alter"]) && !has(&["session", "system"]);
    alters_session(statement)
        && (calls_session_function(statement)
            || sets_variable(statement)
            || !(creates || alters_object || is_any(first, &["use", "select", "insert", "merge", "replace"])))
}

pub(super) fn is_ddl(statement: &[Word<'_>]) -> bool {
    first_word(statement).is_some_and(|first| is_any(first, &["alter", "create", "drop", "use"]))
}

/// Whether it certainly returns no rows.
pub(super) fn returns_nothing(statement: &[Word<'_>]) -> bool {
    let Some(first) = first_word(statement) else { return false };
    if keywords(statement).any(|word| is_any(word, &["returning", "output"])) {
        return false;
    }
    match is_any(first, &["with"]) {
        true => writes_after_with(statement),
        false => is_in(SILENT, &first.to_ascii_lowercase()),
    }
}

/// Whether it is a WITH whose verb writes.
pub(super) fn writes_after_with(statement: &[Word<'_>]) -> bool {
    if !first_word(statement).is_some_and(|first| is_any(first, &["with"])) {
        return false;
    }
    // The verb after the WITH queries, which are in parentheses.
    let mut depth = 0_usize;
    let verb = statement.iter().find_map(|word| {
        match word {
            Word::Open => depth += 1,
            Word::Close => depth = depth.saturating_sub(1),
            Word::Keyword(word) if depth == 0 && is_any(word, VERBS) => return Some(*word),
            _ => {}
        }
        None
    });
    verb.is_some_and(|verb| is_any(verb, &["insert", "update", "delete", "merge"]))
}

/// Whether it may begin a transaction. On some servers a savepoint does, outside of one.
pub(super) fn begins(statement: &[Word<'_>]) -> bool {
    let Some(first) = first_word(statement) else { return false };
    let pairs = |one: &str, others: &[&str]| {
        statement.windows(2).any(|pair| {
            pair[0].keyword().is_some_and(|word| word.eq_ignore_ascii_case(one))
                && pair[1].keyword().is_some_and(|word| is_any(word, others))
        })
    };
    is_any(first, &["begin", "start", "savepoint"])
        // Some dialects need no semicolon between statements.
        || pairs("begin", &["tran", "transaction"])
        || pairs("start", &["transaction"])
        || pairs("and", &["chain"])
}

/// Whether it certainly ends the transaction: it has only the words for that.
pub(super) fn ends(statement: &[Word<'_>]) -> bool {
    let words: Option<Vec<_>> = statement.iter().map(Word::keyword).collect();
    let Some([first, rest @ ..]) = words.as_deref() else { return false };
    let rest = match rest {
        [word, rest @ ..] if is_any(word, &["work", "tran", "transaction"]) => rest,
        rest => rest,
    };
    let chains_not = matches!(rest, [and, no, chain]
        if is_any(and, &["and"]) && is_any(no, &["no"]) && is_any(chain, &["chain"]));
    is_any(first, &["commit", "rollback", "end", "abort"]) && (rest.is_empty() || chains_not)
}

/// Whether a statement that ends the transaction commits it.
pub(super) fn commits(statement: &[Word<'_>]) -> bool {
    first_word(statement).is_some_and(|first| is_any(first, &["commit", "end"]))
}

/// Whether a refused text has certainly left nothing, in any dialect: it is a single statement, and nowhere,
/// not even in a string or a comment, has a word of a statement that may do a part of its work before it
/// fails. The remaining doubt is a server that runs a procedure by its bare name.
pub(super) fn is_all_or_nothing(sql: &str) -> bool {
    let statement = sql.trim_end_matches(|letter: char| letter == ';' || letter.is_whitespace());
    let mut words = statement.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    !statement.contains(';')
        && words.all(|word| {
            let lower = word.to_ascii_lowercase();
            !is_in(NOT_ATOMIC, &lower) && !is_session_function(&lower)
        })
}

fn keywords<'s, 'a>(statement: &'s [Word<'a>]) -> impl Iterator<Item = &'a str> + 's {
    statement.iter().filter_map(Word::keyword)
}

/// `SELECT ... INTO TEMP t`, `INTO LOCAL TEMP t`, `INTO pg_temp.t`, `INTO #t`, and `INTO @variable`.
fn into_temporary(statement: &[Word<'_>], first: &str) -> bool {
    let writes_rows = is_any(first, &["insert", "merge", "replace"]);
    statement.iter().enumerate().any(|(place, word)| {
        if !word.keyword().is_some_and(|word| is_any(word, &["into"])) {
            return false;
        }
        let rest = &statement[place + 1..];
        let scopes = rest.iter().take_while(|word| {
            word.keyword().is_some_and(|word| is_any(word, &["global", "local", "unlogged"]))
        });
        let rest = &rest[scopes.count()..];
        let says_so = rest.first().and_then(Word::keyword).is_some_and(|word| {
            word.starts_with(['#', '@']) || !writes_rows && is_any(word, &["temp", "temporary"])
        });
        says_so || names_temporary(&rest[..rest.len().min(4)])
    })
}

/// Whether it names something in a temporary schema, quoted or not, or `#t`.
fn names_temporary(statement: &[Word<'_>]) -> bool {
    let qualified = statement.windows(2).any(|pair| {
        let name = match pair[0] {
            Word::Keyword(name) | Word::Quoted(name) | Word::Text(name) => name,
            _ => return false,
        };
        pair[1] == Word::Dot && is_temporary_schema(name)
    });
    qualified || keywords(statement).any(|word| word.starts_with('#'))
}

pub(super) fn is_temporary_schema(name: &str) -> bool {
    let name = name.trim_matches(['"', '`', '[', ']', '\'']);
    is_any(name, &["temp", "pg_temp", "tempdb"]) || name.to_ascii_lowercase().starts_with("pg_temp_")
}

/// Whether it calls a function that changes the session: a setting, a seed, a session lock.
fn calls_session_function(statement: &[Word<'_>]) -> bool {
    statement.windows(2).any(|pair| match pair[0] {
        Word::Keyword(name) | Word::Quoted(name) => {
            pair[1] == Word::Open && is_session_function(&name.to_ascii_lowercase())
        }
        _ => false,
    })
}

fn is_session_function(lower: &str) -> bool {
    let locks = lower.starts_with("pg_advisory_") || lower.starts_with("pg_try_advisory_");
    is_in(SESSION_FUNCTIONS, lower) || locks && !lower.contains("_xact_")
}

/// `@x := 1`, which stays with the session.
fn sets_variable(statement: &[Word<'_>]) -> bool {
    statement
        .windows(2)
        .any(|pair| pair[1] == Word::Assign && pair[0].keyword().is_some_and(|word| word.starts_with('@')))
}

/// The statement that EXPLAIN ANALYZE runs.
fn explained<'s, 'a>(statement: &'s [Word<'a>]) -> &'s [Word<'a>] {
    let mut depth = 0_usize;
    let start = statement.iter().position(|word| match word {
        Word::Open => {
            depth += 1;
            false
        }
        Word::Close => {
            depth = depth.saturating_sub(1);
            false
        }
        _ if depth > 0 => false,
        word => {
            !word.keyword().is_some_and(|word| is_any(word, &["explain", "analyze", "analyse", "verbose"]))
        }
    });
    // A SELECT in parentheses is skipped like the options. Nothing is left then.
    start.map_or(&[], |start| &statement[start..])
}

/// `PRAGMA table_info(t)`, and others that only read.
fn is_read_only_pragma(statement: &[Word<'_>]) -> bool {
    let rest = match statement {
        [_, Word::Keyword(_) | Word::Quoted(_), Word::Dot, rest @ ..] => rest,
        [_, rest @ ..] => rest,
        [] => return false,
    };
    let is_value = |word: &Word<'_>| matches!(word, Word::Keyword(_) | Word::Quoted(_) | Word::Text(_));
    match rest {
        [Word::Keyword(name), rest @ ..] if is_in(READ_ONLY_PRAGMAS, &name.to_ascii_lowercase()) => {
            match rest {
                [] => true,
                [Word::Open, values @ .., Word::Close] => values.iter().all(is_value),
                _ => false,
            }
        }
        _ => false,
    }
}
