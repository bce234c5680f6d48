//! Where the stream of one side is: between two frames, or in the middle of one.
//!
//! Frames that act on the session are read whole; of an error or a notice, the first MiB. Of the others only the header is, and their bodies
//! pass as they come.

/// Frames that pass as they are. They are copied when the run ends.
pub(super) struct Run<'a> {
    bytes: &'a [u8],
    start: usize,
    at: usize,
}

impl<'a> Run<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, start: 0, at: 0 }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `count` bytes belong to it, or as many as there are. How many are missing.
    fn pass(&mut self, count: usize) -> usize {
        let there = count.min(self.bytes.len() - self.at);
        self.at += there;
        count - there
    }

    /// The next `count` bytes do not pass, or as many of them as there are. How many are missing.
    fn skip(&mut self, count: usize, out: &mut Vec<u8>) -> usize {
        self.flush(out);
        let missing = self.pass(count);
        self.start = self.at;
        missing
    }

    /// Copies what belongs to it, so that something else can follow.
    #[inline]
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        if self.start < self.at {
            out.extend_from_slice(&self.bytes[self.start..self.at]);
        }
        self.start = self.at;
    }
}

/// How far the frames of one side have come.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// The beginning of a frame that must be read whole.
    pub(super) partial: Vec<u8>,
    /// How much is to come of a frame whose beginning has passed, or was dropped.
    missing: usize,
    /// What is to come goes nowhere.
    drops: bool,
}

impl Framing {
    /// Whether no frame has begun that has not ended.
    pub(super) const fn is_between_frames(&self) -> bool {
        self.partial.is_empty() && self.missing == 0
    }

    /// Whether the end of a frame is to come that is not read whole.
    pub(super) const fn is_in_body(&self) -> bool {
        self.missing > 0
    }

    /// Whether the beginning of a frame has passed, and its end has not. Nothing else can be said on that side.
    pub(super) const fn is_halfway(&self) -> bool {
        self.missing > 0 && !self.drops
    }

    /// The next frame, of this length, passes.
    #[inline]
    pub(super) fn pass(&mut self, length: usize, run: &mut Run<'_>) {
        self.missing = run.pass(length);
        self.drops = false;
    }

    /// The next frame, of this length, goes nowhere.
    pub(super) fn skip(&mut self, length: usize, run: &mut Run<'_>, out: &mut Vec<u8>) {
        self.missing = run.skip(length, out);
        self.drops = true;
    }

    /// The frame that has begun goes on.
    #[inline]
    pub(super) fn go_on(&mut self, run: &mut Run<'_>, out: &mut Vec<u8>) {
        if self.missing > 0 {
            self.missing = if self.drops { run.skip(self.missing, out) } else { run.pass(self.missing) };
        }
    }

    /// All that is there waits for the rest of its frame.
    pub(super) fn keep(&mut self, run: &mut Run<'_>, out: &mut Vec<u8>) {
        let rest = run.rest();
        run.skip(rest.len(), out);
        self.partial.extend_from_slice(rest);
    }

    /// This much of a frame is to come, and goes nowhere.
    pub(super) fn drop_next(&mut self, missing: usize) {
        self.missing = missing;
        self.drops = true;
    }

    /// What is to come of the frame that has begun goes nowhere.
    pub(super) fn drop_rest(&mut self) {
        self.drops = true;
    }
}
