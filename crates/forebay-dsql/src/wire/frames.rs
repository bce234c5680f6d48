//! Cuts a stream of bytes into frames, wherever it is split, without keeping any of them.

/// Hears of the frames that pass.
pub(crate) trait Listener {
    /// A frame begins. Whether to hear its body, too.
    fn begin(&mut self, kind: u8) -> bool;

    /// A part of the body of the frame that began last.
    fn body(&mut self, part: &[u8]);

    /// The frame that began last is complete.
    fn end(&mut self);
}

/// A length that cannot be one: the stream is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// What a frame without a type, which is only a client's first, is called here.
pub(crate) const STARTUP: u8 = 0;

/// Where in a stream of frames we are.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    header: [u8; 5],
    /// How much of the header is there.
    filled: usize,
    /// How much of the body is to come.
    left: usize,
    heard: bool,
}

const TYPED: usize = 0;
/// The place of the type byte is taken: it is known to be none.
const UNTYPED: usize = 1;

impl Frames {
    /// A server's: every frame has a type.
    pub(crate) const fn of_server() -> Self {
        Self { header: [0; 5], filled: TYPED, left: 0, heard: false }
    }

    /// A client's: the first one has none.
    pub(crate) const fn of_client() -> Self {
        Self { header: [STARTUP; 5], filled: UNTYPED, left: 0, heard: false }
    }

    /// Whether a frame has begun, and its end is to come.
    pub(crate) const fn is_inside(&self) -> bool {
        self.left > 0 || self.filled > TYPED
    }

    /// How many bytes at most are certain to belong to the frame that has begun.
    pub(crate) const fn rest(&self) -> usize {
        if self.left > 0 { self.left } else { self.header.len() - self.filled }
    }

    /// Passes on what `bytes` bring.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], listener: &mut impl Listener) -> Result<(), Garbage> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
                bytes = rest;
                self.left -= part.len();
                if self.heard {
                    listener.body(part);
                }
            } else if self.filled == TYPED
                && let Some((header, rest)) = bytes.split_first_chunk()
            {
                let (kind, length) = read(*header)?;
                let heard = listener.begin(kind);
                // In one piece, as nearly all are: there is nothing to remember.
                let Some((body, behind)) = rest.split_at_checked(length) else {
                    (self.left, self.heard, bytes) = (length, heard, rest);
                    continue;
                };
                if heard {
                    listener.body(body);
                }
                bytes = behind;
            } else {
                let missing = &mut self.header[self.filled..];
                let (part, rest) = bytes.split_at(missing.len().min(bytes.len()));
                missing[..part.len()].copy_from_slice(part);
                bytes = rest;
                self.filled += part.len();
                if self.filled < self.header.len() {
                    return Ok(());
                }
                self.filled = TYPED;
                let (kind, length) = read(self.header)?;
                self.left = length;
                self.heard = listener.begin(kind);
            }
            if self.left == 0 {
                listener.end();
            }
        }
        Ok(())
    }
}

/// The type of a frame, and how long its body is.
fn read([kind, length @ ..]: [u8; 5]) -> Result<(u8, usize), Garbage> {
    // The length counts itself.
    let body = u32::from_be_bytes(length).checked_sub(4).ok_or(Garbage)?;
    Ok((kind, usize::try_from(body).map_err(|_| Garbage)?))
}
