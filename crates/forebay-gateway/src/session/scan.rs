//! Reads SQL as far as a session must understand it: what each statement of a text does to the session.
//!
//! What is not understood is never guessed. It is passed on, and the session is marked as unsure of its settings.

mod command;
mod functions;
mod lexer;
mod set_config;

use std::ops::Range;

use super::min_messages;

use self::functions::Call;
use self::lexer::{Lexer, Token};
pub(super) use self::set_config::of as set_config;

/// What a call of `set_config` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// A setting that the server lists.
    Plain,
    /// One that it does not list, such as `role` or `app.tenant`, or that cannot be told from the text.
    Hidden,
    /// Any, until the end of the transaction.
    Local,
}

/// What a text does, apart from what its statements leave in the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    /// It may change data, so that a lost connection leaves its outcome unknown.
    pub(super) const WRITES: Self = Self(1);
    /// It may change settings in a way that was not understood.
    pub(super) const UNSURE: Self = Self(2);
    /// It asks for the last value of a sequence.
    pub(super) const READS_SEQUENCE: Self = Self(4);
    /// It ends a transaction block with a commit, unless it fails.
    pub(super) const COMMITS: Self = Self(8);
    /// It ends a transaction block with a rollback.
    pub(super) const ROLLS_BACK: Self = Self(16);
    /// It may change the schema, of which other backends hear as a conflict.
    pub(super) const SCHEMA: Self = Self(32);
    const CHANGES_SCHEMA: Self = Self(Self::WRITES.0 | Self::SCHEMA.0);

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What a statement leaves in the session once it is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Effect {
    #[default]
    None,
    /// `SET name ...`; the text is what follows `SET `.
    Set {
        name: Box<str>,
        text: Box<str>,
    },
    /// `SELECT set_config('name', 'value', false)`: as `Set`. But its portal may be executed again, and then it sets nothing.
    SetConfig {
        name: Box<str>,
        text: Box<str>,
    },
    /// The same with a parameter for the value, by its number from 0. Until that is known, it may set anything.
    SetConfigTo {
        name: Box<str>,
        parameter: usize,
    },
    /// `SET name TO DEFAULT`: as `Reset`, with another tag.
    SetDefault(Box<str>),
    /// `SET LOCAL client_min_messages ...`; the text is what follows `SET LOCAL `. Any other SET LOCAL is the server's.
    SetMinMessagesLocal(Box<str>),
    /// `SHOW client_min_messages`.
    ShowMinMessages,
    /// `SET LOCAL name TO DEFAULT`: it leaves nothing.
    LocalDefault(Box<str>),
    Reset(Box<str>),
    ResetAll,
    /// `SET ROLE` or `SET SESSION AUTHORIZATION`, or their reset (no text). Another client must not get this backend.
    Role {
        name: &'static str,
        text: Option<Box<str>>,
    },
    Begin,
    Commit,
    Rollback,
    Savepoint(Box<[u8]>),
    Release(Box<[u8]>),
    RollbackTo(Box<[u8]>),
    /// Something that cannot be carried over to another backend.
    Pin,
    Deallocate(Box<[u8]>),
    DeallocateAll,
    DiscardAll,
    /// `DISCARD PLANS`, `SEQUENCES` or `TEMP`, with its tag.
    Discard(&'static str),
    Unlisten,
    CloseAll,
    /// `SELECT pg_advisory_unlock_all()`.
    UnlockAll,
}

/// A statement of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where it is in the text, without what surrounds it.
    pub(super) range: Range<usize>,
    pub(super) flags: Flags,
    pub(super) effect: Effect,
}

/// What a text means to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It leaves nothing behind. Nearly all are.
    Plain(Flags),
    /// Statement by statement.
    Pieces(Vec<Piece>),
}

/// Reads a text. `escapes`: whether a backslash escapes in plain strings.
pub(super) fn read(sql: &[u8], escapes: bool) -> Meaning {
    let mut statements = Statements { lexer: Lexer::new(sql, escapes) };
    let Some(first) = statements.next() else { return Meaning::Plain(Flags::default()) };
    // BEGIN and COMMIT alone need no step: the status that follows says all.
    let light = matches!(first.effect, Effect::Begin | Effect::Commit);
    let mut flags = first.flags;
    let mut pieces = Vec::new();
    if !light && first.effect != Effect::None {
        pieces.push(first.clone());
    }
    if pieces.is_empty() {
        let second = loop {
            match statements.next() {
                Some(next) if !light && next.effect == Effect::None => flags.add(next.flags),
                other => break other,
            }
        };
        if second.is_none() {
            return Meaning::Plain(flags);
        }
        statements = Statements { lexer: Lexer::new(sql, escapes) };
    }
    pieces.extend(std::iter::from_fn(|| statements.next()));
    Meaning::Pieces(pieces)
}

/// A text as a prepared statement has it: what its only statement does.
pub(super) fn single(sql: &[u8], escapes: bool) -> (Flags, Effect) {
    let mut statements = Statements { lexer: Lexer::new(sql, escapes) };
    match (statements.next(), statements.next()) {
        (Some(only), None) => (only.flags, only.effect),
        // The server refuses several in one prepared statement.
        _ => (Flags::default(), Effect::None),
    }
}

/// All statements of a text.
pub(super) fn pieces(sql: &[u8], escapes: bool) -> Vec<Piece> {
    let mut statements = Statements { lexer: Lexer::new(sql, escapes) };
    std::iter::from_fn(|| statements.next()).collect()
}

struct Statements<'a> {
    lexer: Lexer<'a>,
}

/// Longest name that is compared with known ones. PostgreSQL cuts names at 63 bytes.
const LONGEST_NAME: usize = 63;

/// The view of settings.
const SETTINGS: &[u8] = b"pg_settings";

impl Statements<'_> {
    fn next(&mut self) -> Option<Piece> {
        let (token, range) = loop {
            let next = self.lexer.next()?;
            if next.0 != Token::Semicolon {
                break next;
            }
        };
        if token != Token::Word {
            return Some(self.general(token, range, Flags::WRITES));
        }
        let mut buffer = [0; 12];
        let word = lower(self.lexer.text(&range), &mut buffer);
        Some(match word {
            b"select" | b"values" | b"table" | b"fetch" | b"with" | b"explain" => {
                self.general(token, range, Flags::default())
            }
            b"show" => {
                let mut piece = self.general(token, range, Flags::default());
                if command::shows(self.lexer.text(&piece.range), min_messages::NAME) {
                    piece.effect = Effect::ShowMinMessages;
                }
                piece
            }
            b"insert" | b"update" | b"delete" | b"merge" | b"copy" => {
                self.general(token, range, Flags::WRITES)
            }
            b"begin" | b"start" => self.rest(range, Flags::default(), Effect::Begin),
            b"commit" | b"end" => self.rest(range, Flags::COMMITS, Effect::Commit),
            b"set" | b"reset" | b"rollback" | b"abort" | b"savepoint" | b"release" | b"deallocate"
            | b"discard" | b"unlisten" | b"close" => command::read(&mut self.lexer, word, range),
            b"listen" | b"prepare" | b"declare" | b"load" => self.rest(range, Flags::WRITES, Effect::Pin),
            b"do" | b"call" | b"execute" => {
                let mut flags = Flags::WRITES;
                flags.add(Flags::UNSURE);
                self.rest(range, flags, Effect::None)
            }
            b"create" => self.create(range),
            b"alter" | b"drop" | b"grant" | b"revoke" | b"comment" => {
                self.rest(range, Flags::CHANGES_SCHEMA, Effect::None)
            }
            b"analyze" | b"vacuum" | b"truncate" => self.rest(range, Flags::WRITES, Effect::None),
            _ => self.general(token, range, Flags::WRITES),
        })
    }

    /// Up to the end of the statement, without a look at it.
    fn rest(&mut self, mut range: Range<usize>, flags: Flags, effect: Effect) -> Piece {
        let mut depth = 0_usize;
        while let Some((token, at)) = self.lexer.next() {
            match token {
                Token::Semicolon if depth == 0 => break,
                Token::Open => depth += 1,
                Token::Close => depth = depth.saturating_sub(1),
                _ => {}
            }
            range.end = at.end;
        }
        Piece { range, flags, effect }
    }

    /// A statement with expressions: looks at each call.
    fn general(&mut self, first: Token, mut range: Range<usize>, mut flags: Flags) -> Piece {
        let reads = !flags.has(Flags::WRITES);
        let begin = self.lexer.clone();
        let is_select = self.lexer.text(&range).eq_ignore_ascii_case(b"select");
        let (mut sets, mut distinct) = (false, false);
        let mut effect = Effect::None;
        let mut depth = 0_usize;
        let mut count = 1_usize;
        // The token before this one, and the first and the last part of the name that it ends, and the word before that name.
        let mut previous = first;
        let (mut chain, mut name, mut before) = (range.clone(), range.clone(), 0..0);
        let mut follows_parenthesis = false;
        if first == Token::Open {
            depth = 1;
        }
        while let Some((token, at)) = self.lexer.next() {
            match token {
                Token::Semicolon if depth == 0 => break,
                Token::Open => {
                    depth += 1;
                    if matches!(previous, Token::Word | Token::Quoted) {
                        match self.call(&chain, &name, &before) {
                            Call::Harmless => {}
                            // The columns of an alias. A call has an operator or a keyword before it, unless it follows DISTINCT ON (...).
                            Call::Unsure if follows_parenthesis && !distinct => {}
                            Call::Unsure => match self.set_config(&name).inspect(|_| sets = true) {
                                Some(Setting::Local) => flags.add(Flags::WRITES),
                                // It cannot be read from the server, nor be taken back.
                                Some(Setting::Hidden) => {
                                    flags.add(Flags::WRITES);
                                    effect = Effect::Pin;
                                }
                                Some(Setting::Plain) | None => {
                                    flags.add(Flags::UNSURE);
                                    flags.add(Flags::WRITES);
                                }
                            },
                            Call::Pins => {
                                flags.add(Flags::WRITES);
                                effect = Effect::Pin;
                            }
                            Call::ReadsSequence => {
                                flags.add(Flags::READS_SEQUENCE);
                                effect = Effect::Pin;
                            }
                            // With nothing before the name but SELECT and perhaps a schema. What follows is checked below.
                            Call::UnlocksAll if count == if chain == name { 2 } else { 4 } => {
                                (effect, count) = (Effect::UnlockAll, 0);
                            }
                            Call::UnlocksAll => {}
                        }
                    }
                }
                Token::Close => depth = depth.saturating_sub(1),
                Token::Word | Token::Quoted if previous == Token::Dot => name = at.clone(),
                Token::Word | Token::Quoted => {
                    before = if matches!(previous, Token::Word | Token::Quoted) { name } else { 0..0 };
                    (chain, name) = (at.clone(), at.clone());
                    follows_parenthesis = previous == Token::Close;
                    distinct |= self.lexer.text(&at).eq_ignore_ascii_case(b"distinct");
                    if reads && at.len() >= 4 && at.len() <= 6 {
                        let mut buffer = [0; 12];
                        if matches!(
                            lower(self.lexer.text(&at), &mut buffer),
                            b"into" | b"insert" | b"update" | b"delete" | b"merge"
                        ) {
                            flags.add(Flags::WRITES);
                        }
                    }
                }
                _ => {}
            }
            // An UPDATE of this view sets what its WHERE names.
            if at.len() >= SETTINGS.len() && self.is_settings(&at) && flags.has(Flags::WRITES) {
                flags.add(Flags::UNSURE);
            }
            count += 1;
            previous = token;
            range.end = at.end;
        }
        // Two parentheses, and nothing behind them.
        if effect == Effect::UnlockAll && (count != 2 || flags != Flags::default()) {
            effect = Effect::None;
        }
        if sets && is_select {
            match set_config::read(begin) {
                Some(understood @ (Effect::SetConfig { .. } | Effect::None)) => {
                    (flags, effect) = (Flags::default(), understood)
                }
                Some(understood) => effect = understood,
                None => {}
            }
        }
        Piece { range, flags, effect }
    }

    fn call(&self, chain: &Range<usize>, name: &Range<usize>, before: &Range<usize>) -> Call {
        let mut buffer = [0; LONGEST_NAME];
        if !before.is_empty() {
            // A table with its columns, or an alias with its columns.
            let mut buffer = [0; 12];
            if matches!(
                lower(self.lexer.text(before), &mut buffer),
                b"into" | b"as" | b"with" | b"recursive" | b"copy" | b"ordinality"
            ) {
                return Call::Harmless;
            }
        }
        // The query of a COPY, and its options.
        let text = self.lexer.text(name);
        if chain == name
            && [&b"copy"[..], b"stdin", b"stdout"].iter().any(|word| text.eq_ignore_ascii_case(word))
        {
            return Call::Harmless;
        }
        if chain != name {
            match lower(self.lexer.text(chain).trim_ascii(), &mut buffer) {
                b"pg_catalog" => {}
                // Those of the SQL standard's views, such as JDBC uses.
                b"information_schema" if text.starts_with(b"_pg_") => return Call::Harmless,
                _ => return Call::Unsure,
            }
        }
        match text {
            // In quotes it is the same function if it is written in small letters.
            [b'"', inner @ .., b'"'] => functions::call(inner),
            _ => functions::call(lower(text, &mut buffer)),
        }
    }

    /// Whether it is the name of the view of settings.
    fn is_settings(&self, name: &Range<usize>) -> bool {
        match self.lexer.text(name) {
            [b'"', inner @ .., b'"'] => inner == SETTINGS,
            // Escapes can spell any name.
            [b'u' | b'U', b'&', b'"', ..] => true,
            text => text.eq_ignore_ascii_case(SETTINGS),
        }
    }

    /// What a call of `set_config` sets, behind its parenthesis. None: it is another function.
    fn set_config(&self, name: &Range<usize>) -> Option<Setting> {
        let mut buffer = [0; 12];
        // In quotes it is the same function.
        let is_it = match self.lexer.text(name).trim_ascii() {
            [b'"', inner @ .., b'"'] => inner == b"set_config",
            text => lower(text, &mut buffer) == b"set_config",
        };
        if !is_it {
            return None;
        }
        let mut lexer = self.lexer.clone();
        let plain = lexer.next().is_some_and(|(token, at)| {
            let literal = lexer.text(&at).strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'"));
            let hidden = |text: &[u8]| {
                let own = [&b"role"[..], b"session_authorization"];
                own.iter().any(|name| text.eq_ignore_ascii_case(name))
            };
            let simple = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            token == Token::Literal && literal.is_some_and(|text| text.iter().all(simple) && !hidden(text))
        });
        let plain = plain && lexer.clone().next().is_some_and(|(_, at)| lexer.text(&at) == b",");
        // With `true` at the end, it ends with the transaction.
        let (mut depth, mut last, mut before) = (0_usize, (Token::Open, 0..0), 0..0);
        while let Some((token, at)) = lexer.next() {
            match token {
                Token::Close if depth == 0 => break,
                Token::Close => depth -= 1,
                Token::Open => depth += 1,
                _ => {}
            }
            before = std::mem::replace(&mut last, (token, at)).1;
        }
        let local = last.0 == Token::Word
            && lexer.text(&last.1).eq_ignore_ascii_case(b"true")
            && lexer.text(&before) == b",";
        Some(if local {
            Setting::Local
        } else if plain {
            Setting::Plain
        } else {
            Setting::Hidden
        })
    }

    /// CREATE: what is executed begins with a SELECT or the like, if there is such a thing. A body may have semicolons.
    fn create(&mut self, mut range: Range<usize>) -> Piece {
        let mut piece_flags = Flags::CHANGES_SCHEMA;
        let mut effect = Effect::None;
        let (mut depth, mut blocks, mut words) = (0_usize, 0_usize, 0_usize);
        let mut routine = false;
        let mut begin = false;
        while let Some((token, at)) = self.lexer.next() {
            match token {
                Token::Semicolon if depth == 0 && blocks == 0 => break,
                Token::Open => depth += 1,
                Token::Close => depth = depth.saturating_sub(1),
                Token::Word => {
                    words += 1;
                    let mut buffer = [0; 12];
                    let was_begin = std::mem::take(&mut begin);
                    match lower(self.lexer.text(&at), &mut buffer) {
                        b"temp" | b"temporary" if words <= 4 => effect = Effect::Pin,
                        b"function" | b"procedure" => routine = true,
                        b"begin" if routine && blocks == 0 => begin = true,
                        b"atomic" if was_begin => blocks = 1,
                        b"case" | b"begin" if blocks > 0 => blocks += 1,
                        b"end" if blocks > 0 => blocks -= 1,
                        // It may call anything, and is rare.
                        b"select" | b"execute" if !routine => piece_flags.add(Flags::UNSURE),
                        _ => {}
                    }
                }
                _ => {}
            }
            range.end = at.end;
        }
        Piece { range, flags: piece_flags, effect }
    }
}

/// `word` in small letters. Empty if it is longer than the buffer: then it is none of the words that are looked for.
fn lower<'a>(word: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let Some(buffer) = buffer.get_mut(..word.len()) else { return &[] };
    buffer.copy_from_slice(word);
    buffer.make_ascii_lowercase();
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(sql: &str) -> Vec<Effect> {
        pieces(sql.as_bytes(), false).into_iter().map(|piece| piece.effect).collect()
    }

    fn flags(sql: &str) -> Flags {
        match read(sql.as_bytes(), false) {
            Meaning::Plain(flags) => flags,
            Meaning::Pieces(pieces) => panic!("{sql}: {pieces:?}"),
        }
    }

    fn set(name: &str, text: &str) -> Effect {
        Effect::Set { name: name.into(), text: text.into() }
    }

    #[test]
    fn statements_that_read_are_told_from_those_that_write() {
        for sql in [
            "SELECT 1",
            "select * from t where a in (1, 2)",
            "SHOW x",
            "/* a */ VALUES (1)",
            "WITH x AS (SELECT 1) SELECT * FROM x",
            "",
        ] {
            assert_eq!(flags(sql), Flags::default(), "{sql}");
        }
        for sql in [
            "INSERT INTO t (a) VALUES (1)",
            "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x",
            "SELECT * INTO u FROM t",
            "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
            "ANALYZE t",
        ] {
            assert_eq!(flags(sql), Flags::WRITES, "{sql}");
        }
        for sql in [
            "CREATE TABLE t (a varchar(10))",
            "create index async on t (a)",
            "ALTER TABLE t ADD COLUMN b int",
            "SELECT 1; DROP TABLE t",
            "GRANT SELECT ON t TO r",
            "REVOKE SELECT ON t FROM r",
            "COMMENT ON TABLE t IS 'a'",
        ] {
            assert_eq!(flags(sql), Flags::CHANGES_SCHEMA, "{sql}");
        }
        assert_eq!(flags("COMMIT"), Flags::COMMITS);
    }

    #[test]
    fn calls_of_unknown_functions_leave_doubt() {
        let doubt = Flags(Flags::WRITES.0 | Flags::UNSURE.0);
        for (sql, effect) in [
            ("SELECT set_config('Role', 'c', false)", Effect::Pin),
            ("SELECT \"set_config\"('role', 'c', false)", Effect::Pin),
            ("SELECT set_config($1, 'c', false)", Effect::Pin),
            ("SELECT set_config('a.b', 'c', false) FROM t", Effect::Pin),
            ("SELECT set_config('a' || 'b', 'c', f(1))", Effect::Pin),
            ("SELECT set_config('a.b', f('c'), true)", Effect::None),
            ("SELECT set_config('a', 'c', false) FROM t", Effect::None),
        ] {
            assert_eq!(effects(sql), [effect], "{sql}");
        }
        for sql in [
            "SELECT set_config('a', 'b', false) FROM t",
            "SELECT set_config('a', 'b', false) WHERE 1 = 0",
            "SELECT set_config('a', 'b', false) LIMIT 0",
            "SELECT set_config('a', 'b', false) UNION SELECT 'c'",
            "SELECT set_config('a', 'b', false), set_config('c', 'd', false)",
            "SELECT set_config('a', 'b', false), my_function()",
            "SELECT set_config('a', 'b', false), coalesce(set_config('a', 'c', false), 'd')",
            "SELECT coalesce(set_config('a', 'b', false))",
            "SELECT set_config('a', 'b\\c', false)",
            "SELECT set_config('client_encoding', 'SJIS', false)",
            "SELECT pg_catalog.set_config('a', f('b'), false)",
            "SELECT count(*), my_function(1) FROM t",
            "SELECT other.now()",
            "SELECT \"Now\"()",
            "DO $$ BEGIN END $$",
            "CALL sys.wait_for_job('x')",
            "UPDATE pg_settings SET setting = 'x' WHERE name = 'search_path'",
            "UPDATE ONLY pg_catalog.\"pg_settings\" AS s SET setting = 'x'",
            "UPDATE U&\"pg\\005fsettings\" SET setting = 'x'",
            "WITH a AS (UPDATE PG_SETTINGS SET setting = 'x') SELECT 1",
        ] {
            assert_eq!(flags(sql), doubt, "{sql}");
        }
        for sql in [
            "SELECT count ( * ), pg_catalog.now(), \"now\"() FROM t AS x(a)",
            "SELECT 'f(1)', \"f\" FROM f -- f(1)",
            "SELECT a::numeric(10, 2)",
            "SELECT setting FROM pg_settings",
        ] {
            assert_eq!(flags(sql), Flags::default(), "{sql}");
        }
        for sql in
            ["COPY t (a, b) FROM STDIN", "COPY s.t(a) TO STDOUT", "COPY (SELECT count(*) FROM t) TO STDOUT"]
        {
            assert_eq!(flags(sql), Flags::WRITES, "{sql}");
        }
        assert_eq!(flags("COPY (SELECT my_function(a) FROM t) TO STDOUT"), doubt);
    }

    #[test]
    fn set_config_of_a_constant_is_a_set() {
        let set = |name: &str, text: &str| Effect::SetConfig { name: name.into(), text: text.into() };
        let to = |name: &str, parameter| Effect::SetConfigTo { name: name.into(), parameter };
        for (sql, effect) in [
            ("SELECT set_config('bytea_output', 'hex', false)", set("bytea_output", "bytea_output TO 'hex'")),
            (
                "select PG_CATALOG.Set_Config('search_path', '', FALSE);",
                set("search_path", "search_path TO ''"),
            ),
            (
                "SELECT set_config('a.b', 'it''s'::text, false) AS x",
                set("a.b", "set_config('a.b', 'it''s', false)"),
            ),
            (
                "SELECT\n current_setting('jit') AS cur,\n set_config('jit', 'off', false) AS new",
                Effect::None,
            ),
            ("SELECT 1, set_config('TimeZone', $2, false) tz, $1", to("timezone", 1)),
        ] {
            assert_eq!(effects(sql), [effect], "{sql}");
        }
        assert_eq!(pieces(b"SELECT set_config('a', 'b', false)", false)[0].flags, Flags::default());
    }

    #[test]
    fn what_drivers_send_by_themselves_leaves_no_doubt_and_does_not_pin() {
        for sql in include_str!("scan/drivers.sql").split(";\n") {
            for piece in pieces(sql.as_bytes(), false) {
                let certain = piece.effect != Effect::Pin && !piece.flags.has(Flags::UNSURE)
                    || matches!(piece.effect, Effect::SetConfigTo { .. });
                assert!(certain, "{piece:?}: {sql}");
            }
        }
    }

    #[test]
    fn settings_are_read_in_every_spelling() {
        assert_eq!(
            effects("SET a TO b; set A.B = 'c', d -- e"),
            [set("a", "a TO b"), set("a.b", "A.B = 'c', d")]
        );
        assert_eq!(effects("SET SESSION \"DateStyle\" TO iso"), [set("datestyle", "\"DateStyle\" TO iso")]);
        let zone = "TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE";
        assert_eq!(effects(&format!("SET {zone}")), [set("timezone", zone)]);
        assert_eq!(
            effects("SET NAMES 'UTF8';SET SCHEMA 's'"),
            [set("client_encoding", "NAMES 'UTF8'"), set("search_path", "SCHEMA 's'")]
        );
        let default = |name: &str| Effect::SetDefault(name.into());
        assert_eq!(
            effects("SET a TO DEFAULT;SET TIME ZONE LOCAL;SET NAMES"),
            [default("a"), default("timezone"), default("client_encoding")]
        );
        assert_eq!(
            effects("SET LOCAL a TO b;SET LOCAL a TO DEFAULT"),
            [Effect::None, Effect::LocalDefault("a".into())]
        );
        assert_eq!(
            effects("SET TRANSACTION READ ONLY;SET transaction_isolation TO serializable"),
            [Effect::None, Effect::None]
        );
        let reset = |name: &str| Effect::Reset(name.into());
        assert_eq!(
            effects("RESET ALL;RESET a.B;RESET TIME ZONE"),
            [Effect::ResetAll, reset("a.b"), reset("timezone")]
        );
        let role = |name, text: Option<&str>| Effect::Role { name, text: text.map(Into::into) };
        assert_eq!(
            effects(
                "SET ROLE r;SET ROLE NONE;RESET ROLE;SET SESSION AUTHORIZATION 'x';SET role = r;SET SESSION ROLE r"
            ),
            [
                role("role", Some("ROLE r")),
                role("role", None),
                role("role", None),
                role("session_authorization", Some("SESSION AUTHORIZATION 'x'")),
                role("role", Some("role = r")),
                role("role", Some("ROLE r"))
            ]
        );
        // How a backslash is read may change: such a text is not kept.
        assert!(matches!(
            &pieces(b"SET a TO 'b\\c'", false)[..],
            [Piece { effect: Effect::None, flags: Flags::UNSURE, .. }]
        ));
        assert_eq!(
            effects("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
            [set(
                "default_transaction_isolation",
                "SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            )]
        );
        // Several at once.
        assert!(matches!(
            &pieces(b"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, DEFERRABLE", false)[..],
            [Piece { flags: Flags::UNSURE, .. }]
        ));
    }

    #[test]
    fn what_drivers_clean_up_with_is_recognised() {
        assert_eq!(
            effects("SELECT pg_advisory_unlock_all();CLOSE ALL;UNLISTEN *;DISCARD ALL;DISCARD TEMPORARY"),
            [
                Effect::UnlockAll,
                Effect::CloseAll,
                Effect::Unlisten,
                Effect::DiscardAll,
                Effect::Discard("DISCARD TEMP")
            ]
        );
        assert_eq!(
            effects("DEALLOCATE ALL;DEALLOCATE PREPARE Ab;DEALLOCATE \"A\"\"b\";DEALLOCATE prepare"),
            [
                Effect::DeallocateAll,
                Effect::Deallocate(b"ab"[..].into()),
                Effect::Deallocate(b"A\"b"[..].into()),
                Effect::Deallocate(b"prepare"[..].into())
            ]
        );
        assert_eq!(effects("SELECT pg_catalog.pg_advisory_unlock_all()"), [Effect::UnlockAll]);
        for sql in [
            "SELECT pg_advisory_unlock_all(), 1",
            "SELECT 1, pg_advisory_unlock_all()",
            "SELECT pg_advisory_unlock_all() AS a",
            "CLOSE c",
        ] {
            assert_eq!(effects(sql), [Effect::None], "{sql}");
        }
        assert_eq!(
            effects("SELECT nextval('s');SELECT setseed(1);LISTEN a;CREATE TEMP TABLE t (a int)"),
            [const { Effect::Pin }; 4]
        );
    }

    #[test]
    fn transactions_are_followed() {
        let name = |name: &[u8]| name.into();
        assert_eq!(
            effects(
                "BEGIN;SAVEPOINT A;ROLLBACK TO SAVEPOINT a;ROLLBACK WORK TO a;RELEASE a;ROLLBACK AND CHAIN;ABORT;END"
            ),
            [
                Effect::Begin,
                Effect::Savepoint(name(b"a")),
                Effect::RollbackTo(name(b"a")),
                Effect::RollbackTo(name(b"a")),
                Effect::Release(name(b"a")),
                Effect::Rollback,
                Effect::Rollback,
                Effect::Commit
            ]
        );
        assert_eq!(read(b"BEGIN", false), Meaning::Plain(Flags::default()));
        assert!(matches!(read(b"BEGIN; SELECT 1", false), Meaning::Pieces(pieces) if pieces.len() == 2));
    }

    #[test]
    fn a_statement_ends_where_postgresql_ends_it() {
        let texts = |sql: &str| -> Vec<String> {
            pieces(sql.as_bytes(), false).into_iter().map(|piece| sql[piece.range].to_owned()).collect()
        };
        assert_eq!(texts(";; SELECT ';' ;/*;*/ SELECT $a$;$a$ ; "), ["SELECT ';'", "SELECT $a$;$a$"]);
        let function =
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END";
        assert_eq!(texts(&format!("{function}; SELECT 1")), [function, "SELECT 1"]);
        let rule = "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)";
        assert_eq!(texts(&format!("{rule}; SELECT 1")), [rule, "SELECT 1"]);
        assert_eq!(texts("(SELECT 1); SELECT 2"), ["(SELECT 1)", "SELECT 2"]);
    }
}
