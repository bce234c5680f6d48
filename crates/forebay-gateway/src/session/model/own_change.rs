//! A session's own change of the schema. Its next backends meet it as a conflict, which a client of one connection would never see.

use super::server::ModelServer;
use crate::protocol::{HEADER, header};

/// What becomes of a statement with these depends on the session: the gateway sends another in its place, and cannot send that twice.
const REPLACED: [&[u8]; 8] = [
    b"DEALLOCATE",
    b"DISCARD",
    b"CLOSE ALL",
    b"UNLISTEN",
    b"advisory",
    b"client_min_messages",
    b"RESET",
    b"DEFAULT",
];

/// What is known of a client's changes.
#[derive(Debug, Default)]
pub(super) struct OwnChange {
    /// It changed the schema on an earlier backend.
    behind: bool,
    /// How often the schema was changed on this backend before it came.
    before: u64,
    /// It has prepared statements that the gateway replaces, or that are empty, so that they meet nothing.
    replaced: bool,
    /// The next backend is to meet the change.
    waits: bool,
}

impl OwnChange {
    pub(super) fn attached(&mut self, backend: &mut ModelServer) {
        self.before = backend.changed;
        self.meet(backend);
    }

    fn meet(&mut self, backend: &mut ModelServer) {
        if std::mem::take(&mut self.waits) {
            // At once, whatever was left over there.
            backend.conflicts += 1;
            backend.spared = 0;
        }
    }

    pub(super) fn left(&mut self, backend: &ModelServer) {
        self.behind |= backend.changed > self.before;
    }

    /// The idle client sends these frames. Whether the gateway can hide that they meet the change.
    pub(super) fn can_meet(&mut self, frames: &[u8], at_once: bool) -> bool {
        let says = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        let (mut kinds, mut rest) = (Vec::new(), frames);
        while let Ok(Some((kind, length))) = header(rest) {
            let (frame, behind) = rest.split_at(length);
            let is_empty = kind == b'P' && frame[HEADER..].iter().filter(|&&byte| byte != 0).count() == 0;
            self.replaced |= kind == b'P' && (is_empty || REPLACED.iter().any(|text| says(frame, text)));
            kinds.push(kind);
            rest = behind;
        }
        let is_segment = match &*kinds {
            [b'Q'] => !REPLACED.iter().any(|text| says(frames, text)),
            [b'P' | b'B' | b'D', requests @ .., b'S'] => {
                at_once && !self.replaced && requests.iter().all(|kind| b"PBDEC".contains(kind))
            }
            _ => false,
        };
        self.behind && is_segment
    }

    /// What it sends next meets the change.
    pub(super) fn meets(&mut self, backend: Option<&mut ModelServer>) {
        self.waits = true;
        if let Some(backend) = backend {
            self.meet(backend);
        }
    }

    /// It is answered. Whether it has met the change.
    pub(super) fn answered(&mut self, backend: Option<&mut ModelServer>) -> bool {
        let waits = std::mem::take(&mut self.waits);
        backend.is_some_and(|backend| std::mem::take(&mut backend.conflicts) == 0) && !waits
    }
}
