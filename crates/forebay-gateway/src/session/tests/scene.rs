//! A session, and what it has for both sides.

use crate::protocol::{HEADER, header};
use crate::session::{Lost, Memory, Outbox, Reported, SessionLimits, StartSettings, VirtualSession};

/// The frames, short: the type, and of errors the SQLSTATE, of others what can be read.
pub(super) fn short(mut bytes: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    while let Ok(Some((kind, length))) = header(bytes) {
        let body = &bytes[HEADER..length];
        let text = match kind {
            b'E' if body.starts_with(b"S") => {
                let fields: Vec<&[u8]> = body.split(|&byte| byte == 0).collect();
                format!("{}{}", char::from(body[1]), String::from_utf8_lossy(&fields[2][1..]))
            }
            _ => body
                .iter()
                .filter(|byte| byte.is_ascii_graphic() || **byte == b' ')
                .map(|&byte| char::from(byte))
                .collect(),
        };
        frames.push(format!("{}{text}", char::from(kind)));
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "half a frame");
    frames
}

pub(super) struct Scene {
    pub(super) session: VirtualSession,
    pub(super) out: Outbox,
}

impl Scene {
    pub(super) fn new(start: &[(&str, &str)]) -> Self {
        let mut session =
            VirtualSession::new(StartSettings::new(start.iter().copied()), SessionLimits::default());
        let reported = Reported::new([("application_name", ""), ("TimeZone", "UTC")]);
        session.greet(&reported, [1; 8], &mut Outbox::default());
        Self { session, out: Outbox::default() }
    }

    pub(super) fn attached() -> Self {
        let mut scene = Self::new(&[]);
        scene.attach(Memory::default());
        scene
    }

    pub(super) fn attach(&mut self, memory: Memory) {
        let reported = Reported::new([("application_name", ""), ("TimeZone", "UTC")]);
        self.session.attach(memory, &reported, &mut self.out);
    }

    pub(super) fn client(&mut self, frames: &[Vec<u8>]) {
        self.session.from_client(&frames.concat(), &mut self.out).unwrap();
    }

    pub(super) fn server(&mut self, frames: &[Vec<u8>]) {
        self.session.from_server(&frames.concat(), &mut self.out).unwrap();
    }

    pub(super) fn lost(&mut self) -> Lost {
        self.session.lost(&mut self.out)
    }

    /// What the client got since the last time.
    pub(super) fn seen(&mut self) -> Vec<String> {
        short(&std::mem::take(&mut self.out.to_client))
    }

    /// What the backend got since the last time.
    pub(super) fn sent(&mut self) -> Vec<String> {
        short(&std::mem::take(&mut self.out.to_server))
    }
}
