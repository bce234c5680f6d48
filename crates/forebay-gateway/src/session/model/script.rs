//! What clients do: random, but like what drivers do, and the things that no driver should do.

use forebay::Rng;

use crate::protocol::{client, write};

/// A step of a client, or of somebody else.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The client sends these frames at once.
    Send { what: String, frames: Vec<u8> },
    /// Somebody changes the type of a column.
    Alter(u32),
}

const NAMES: [&str; 4] = ["", "s1", "s2", "S3"];
const PORTALS: [&str; 3] = ["", "", "p1"];
const SETTINGS: [&str; 5] =
    ["application_name", "TimeZone", "DateStyle", "search_path", "extra_float_digits"];

pub(super) struct Writer<'a> {
    pub(super) rng: &'a mut Rng,
    what: String,
    frames: Vec<u8>,
}

pub(crate) fn script(rng: &mut Rng, length: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..length {
        if rng.below(12) == 0 {
            events.push(Event::Alter([20, 23, 25][index(rng, 3)]));
        }
        let mut writer = Writer { rng, what: String::new(), frames: Vec::new() };
        writer.event();
        events.push(Event::Send { what: writer.what, frames: writer.frames });
    }
    // Whatever state it is in, everything is answered now.
    let mut end = Writer { rng, what: String::new(), frames: Vec::new() };
    end.bare(client::COPY_DONE, "CopyDone");
    end.bare(client::SYNC, "Sync");
    events.push(Event::Send { what: end.what, frames: end.frames });
    events
}

fn index(rng: &mut Rng, count: usize) -> usize {
    usize::try_from(rng.below(count as u64)).unwrap_or(0)
}

impl Writer<'_> {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[index(self.rng, of.len())]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    /// One that no other statement has.
    fn value(&mut self) -> String {
        (100_000_000 + self.rng.below(900_000_000)).to_string()
    }

    fn note(&mut self, what: &str) {
        self.what.push_str(what);
        self.what.push_str(" | ");
    }

    fn bare(&mut self, kind: u8, what: &str) {
        write::bare(&mut self.frames, kind);
        self.note(what);
    }

    fn event(&mut self) {
        match self.rng.below(20) {
            0..=6 => self.query(),
            7..=15 => self.segment(),
            16 => self.copy(),
            17 => {
                // Several at once.
                self.query();
                self.segment();
                self.query();
            }
            18 => {
                write::frame(&mut self.frames, client::FUNCTION_CALL, |out| out.extend_from_slice(&[0; 10]));
                self.note("FunctionCall");
            }
            _ => {
                if self.chance(50) {
                    self.bare(client::SYNC, "Sync");
                } else {
                    self.bare(client::FLUSH, "Flush");
                }
            }
        }
    }

    fn query(&mut self) {
        let count = if self.chance(70) { 1 } else { self.rng.below(5) };
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(&self.statement(false));
            let end = self.pick(&[";", "; ", ";;", " ;\n"]);
            text.push_str(end);
        }
        if self.chance(50) {
            text.truncate(text.trim_end_matches([';', ' ', '\n']).len());
        }
        write::query(&mut self.frames, text.as_bytes());
        self.note(&format!("Query {text:?}"));
    }

    fn statement(&mut self, extended: bool) -> String {
        let setting = self.pick(&SETTINGS);
        let value = self.pick(&["a", "b", "'c;d'", "'x y'", "DEFAULT", "bad", "'it''s'"]);
        let name = self.pick(&["s1", "s2", "s9"]);
        let save = self.pick(&["a", "b"]);
        let level = self.pick(&["warning", "'error'", "notice", "DEFAULT", "bad"]);
        match self.rng.below(44) {
            41 => "CREATE TABLE IF NOT EXISTS u (a int)".to_owned(),
            42 => "DROP TABLE IF EXISTS u".to_owned(),
            43 if extended => "DROP TABLE IF EXISTS u".to_owned(),
            43 => format!("ALTER TABLE t ADD COLUMN c{}", self.value()),
            0..=3 => "SELECT 1".to_owned(),
            4 => "SELECT 'a;b'".to_owned(),
            5 => format!("SELECT g FROM generate_series(1, {}) AS g", self.rng.below(4)),
            6 => "SELECT wrong".to_owned(),
            7 => "SELECT 1/0".to_owned(),
            8 | 9 => format!("SHOW {setting}"),
            10..=13 => format!("SET {setting} {} {value}", self.pick(&["TO", "="])),
            14 => format!("SET LOCAL {setting} TO {value}"),
            15 => format!("RESET {setting}"),
            16 => "RESET ALL".to_owned(),
            17 | 18 => "BEGIN".to_owned(),
            19 | 20 => "COMMIT".to_owned(),
            21 | 22 => "ROLLBACK".to_owned(),
            23 if !extended => format!("SAVEPOINT {save}"),
            24 if !extended => format!("ROLLBACK TO {save}"),
            25 if !extended => format!("RELEASE {save}"),
            26 | 34..=36 if extended => "INSERT INTO t (a) VALUES ($1)".to_owned(),
            26 | 34..=36 => format!("INSERT INTO t (a) VALUES ({})", self.value()),
            27 => "DO 'notice'".to_owned(),
            28 => {
                // The second is not understood.
                let rest = self.pick(&["", " LIMIT 1"]);
                format!("SELECT set_config('{}', 'z', false){rest}", setting.to_ascii_lowercase())
            }
            37 | 38 => format!("SET client_min_messages TO {level}"),
            39 => format!("SET LOCAL client_min_messages TO {level}"),
            40 => self.pick(&["RESET client_min_messages", "SHOW client_min_messages"]).to_owned(),
            29 => format!("DEALLOCATE {name}"),
            30 => "DEALLOCATE ALL".to_owned(),
            31 => self.pick(&["CLOSE ALL", "UNLISTEN *", "SELECT pg_advisory_unlock_all()"]).to_owned(),
            32 if !extended => "DISCARD ALL".to_owned(),
            33 if !extended => "COPY t TO STDOUT".to_owned(),
            _ => "SET TIME ZONE 'Europe/Berlin'".to_owned(),
        }
    }

    fn parse(&mut self, name: &str) {
        let text = match self.rng.below(10) {
            0..=3 => "SELECT * FROM t".to_owned(),
            4 => "SELECT $1".to_owned(),
            5 if self.chance(20) => "SELECT set_config('timezone', $1, false)".to_owned(),
            5 => "INSERT INTO t (a) VALUES ($1)".to_owned(),
            6 => "SELECT g FROM generate_series(1, 5) AS g".to_owned(),
            7 if name.is_empty() => self.pick(&["COMMIT", "ROLLBACK", "", "SELECT 1; SELECT 2"]).to_owned(),
            _ => self.statement(true),
        };
        let exits = matches!(&*text, "COMMIT" | "ROLLBACK");
        let text = if exits && !name.is_empty() { "SELECT 1".to_owned() } else { text };
        let typed = self.chance(30) && text.contains('$');
        let mut rest = text.clone().into_bytes();
        rest.extend_from_slice(if typed { &[0, 0, 1, 0, 0, 0, 20] } else { &[0, 0, 0] });
        write::parse(&mut self.frames, name.as_bytes(), &rest);
        self.note(&format!("Parse {name:?} {text:?}"));
        // A client that has not seen the description of a statement cannot be surprised by another.
        if text == "SELECT * FROM t" || text.contains('$') || self.chance(30) {
            self.describe(b'S', name);
        }
    }

    fn describe(&mut self, kind: u8, name: &str) {
        write::frame(&mut self.frames, client::DESCRIBE, |out| {
            out.push(kind);
            out.extend_from_slice(name.as_bytes());
            out.push(0);
        });
        self.note(&format!("Describe {} {name:?}", kind as char));
    }

    fn bind(&mut self, portal: &str, name: &str) {
        let parameter = if self.chance(30) { self.value() } else { String::new() };
        write::frame(&mut self.frames, client::BIND, |out| {
            out.extend_from_slice(portal.as_bytes());
            out.push(0);
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            out.extend_from_slice(&[0, 0, 0, u8::from(!parameter.is_empty())]);
            if !parameter.is_empty() {
                out.extend_from_slice(&u32::try_from(parameter.len()).unwrap_or(0).to_be_bytes());
                out.extend_from_slice(parameter.as_bytes());
            }
            out.extend_from_slice(&[0; 2]);
        });
        self.note(&format!("Bind {portal:?} {name:?} {parameter}"));
    }

    fn execute(&mut self, portal: &str) {
        let limit = self.pick(&[0, 0, 2, 1_u32]);
        write::frame(&mut self.frames, client::EXECUTE, |out| {
            out.extend_from_slice(portal.as_bytes());
            out.push(0);
            out.extend_from_slice(&limit.to_be_bytes());
        });
        self.note(&format!("Execute {portal:?} {limit}"));
    }

    /// Extended requests, mostly in a good order.
    fn segment(&mut self) {
        let rounds = 1 + self.rng.below(3);
        for _ in 0..rounds {
            let name = self.pick(&NAMES);
            let portal = self.pick(&PORTALS);
            if self.chance(if name.is_empty() { 70 } else { 30 }) {
                self.parse(name);
            }
            if self.chance(15) {
                self.describe(b'S', name);
            }
            if self.chance(80) {
                self.bind(portal, name);
            }
            if self.chance(40) {
                self.describe(b'P', portal);
            }
            if self.chance(85) {
                self.execute(portal);
            }
            if self.chance(15) {
                let (kind, name) = if self.chance(60) { (b'S', name) } else { (b'P', portal) };
                write::frame(&mut self.frames, client::CLOSE, |out| {
                    out.push(kind);
                    out.extend_from_slice(name.as_bytes());
                    out.push(0);
                });
                self.note(&format!("Close {} {name:?}", kind as char));
            }
            if self.chance(10) {
                self.bare(client::FLUSH, "Flush");
            }
            if self.chance(5) {
                self.query();
            }
        }
        if self.chance(90) {
            self.bare(client::SYNC, "Sync");
        }
    }

    fn copy(&mut self) {
        let extended = self.chance(50);
        let sql = "COPY t FROM STDIN";
        if extended {
            let mut rest = sql.as_bytes().to_vec();
            rest.extend_from_slice(&[0, 0, 0]);
            write::parse(&mut self.frames, b"", &rest);
            write::bind(&mut self.frames, b"", b"");
            write::execute(&mut self.frames, b"");
            self.note("Parse, Bind, Execute COPY");
            if self.chance(70) {
                self.bare(client::SYNC, "Sync");
            }
        } else {
            write::query(&mut self.frames, sql.as_bytes());
            self.note("Query COPY");
        }
        for _ in 0..self.rng.below(4) {
            write::frame(&mut self.frames, client::COPY_DATA, |out| out.extend_from_slice(b"1\n"));
            self.note("CopyData");
        }
        if self.chance(80) {
            self.bare(client::COPY_DONE, "CopyDone");
        } else {
            write::frame(&mut self.frames, client::COPY_FAIL, |out| out.extend_from_slice(b"no\0"));
            self.note("CopyFail");
        }
        if extended {
            self.bare(client::SYNC, "Sync");
        }
    }
}
