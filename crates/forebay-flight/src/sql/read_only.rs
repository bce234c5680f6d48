//! Whether a statement certainly changes nothing.

use super::vocabulary::{BEFORE_PARENTHESIS, PURE, READERS, WRITERS};
use super::words::Word;
use super::{first_word, is_any, is_in};

pub(super) fn is_read_only(statement: &[Word<'_>]) -> bool {
    let Some(first) = first_word(statement) else { return false };
    // EXPLAIN reads. EXPLAIN ANALYZE runs its statement, and ANALYZE is one of the writers.
    if !is_any(first, READERS) {
        return false;
    }
    let named = names_with_columns(statement);
    statement.iter().enumerate().all(|(place, word)| match word {
        Word::Keyword(name) => {
            let lower = name.to_ascii_lowercase();
            let calls = statement.get(place + 1) == Some(&Word::Open);
            let qualified = place > 0 && statement[place - 1] == Word::Dot;
            if qualified {
                // A column of any name, or an unknown function of some schema. Some servers accept a function
                // of one row written as a column. It counts as a column here, since otherwise hardly any
                // statement would be a read.
                return !calls;
            }
            if calls {
                return is_in(BEFORE_PARENTHESIS, &lower) || is_in(PURE, &lower) || named.contains(&place);
            }
            // FOR takes locks, except in SUBSTRING(x FROM 1 FOR 2) and the like, which are not worth an
            // exception.
            lower != "for" && !is_in(WRITERS, &lower)
        }
        // A quoted name may be the name of a function.
        Word::Quoted(_) => statement.get(place + 1) != Some(&Word::Open) || named.contains(&place),
        // It sets a variable.
        Word::Assign | Word::Doubt => false,
        Word::Text(_) | Word::Other | Word::Open | Word::Close | Word::Dot | Word::Comma | Word::End => true,
    })
}

/// The positions of WITH queries' names that have columns, as in `WITH t (a, b) AS (...)`, and so look like
/// calls.
fn names_with_columns(statement: &[Word<'_>]) -> Vec<usize> {
    let mut places = Vec::new();
    for (place, word) in statement.iter().enumerate() {
        let is_clause = match place.checked_sub(1).map(|before| statement[before]) {
            None | Some(Word::Open) => true,
            Some(before) => is_keyword(before, "explain"),
        };
        if is_clause && is_keyword(*word, "with") {
            follow(statement, place + 1, &mut places);
        }
    }
    places
}

/// Reads a list of WITH queries.
fn follow(statement: &[Word<'_>], mut at: usize, places: &mut Vec<usize>) {
    let keyword = |at: usize, name| statement.get(at).is_some_and(|word| is_keyword(*word, name));
    if keyword(at, "recursive") {
        at += 1;
    }
    loop {
        let name = at;
        if !matches!(statement.get(name), Some(Word::Keyword(_) | Word::Quoted(_))) {
            return;
        }
        at += 1;
        let has_columns = statement.get(at) == Some(&Word::Open);
        if has_columns {
            let Some(end) = closed(statement, at) else { return };
            let plain = |word: &Word<'_>| matches!(word, Word::Keyword(_) | Word::Quoted(_) | Word::Comma);
            if !statement[at + 1..end].iter().all(plain) {
                return;
            }
            at = end + 1;
        }
        if !keyword(at, "as") {
            return;
        }
        at += 1;
        if keyword(at, "not") {
            at += 1;
        }
        if keyword(at, "materialized") {
            at += 1;
        }
        if statement.get(at) != Some(&Word::Open) {
            return;
        }
        let Some(end) = closed(statement, at) else { return };
        if has_columns {
            places.push(name);
        }
        if statement.get(end + 1) != Some(&Word::Comma) {
            return;
        }
        at = end + 2;
    }
}

/// The position where the parenthesis at `open` is closed.
fn closed(statement: &[Word<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, word) in statement.iter().enumerate().skip(open) {
        match word {
            Word::Open => depth += 1,
            Word::Close => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(place);
        }
    }
    None
}

fn is_keyword(word: Word<'_>, name: &str) -> bool {
    word.keyword().is_some_and(|word| word.eq_ignore_ascii_case(name))
}
