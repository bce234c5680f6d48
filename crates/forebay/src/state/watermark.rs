//! The low watermark, and what observers know of it.

use super::{Effects, Lendable, State};

/// Compares the number of usable connections with the low watermark.
#[derive(Debug)]
pub(super) struct Watermark {
    pub(super) level: usize,
    /// What the observers were told last.
    is_below: bool,
    /// Somebody is telling them now.
    is_announcing: bool,
}

/// The number of usable connections has crossed the low watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    pub(crate) size: usize,
    pub(crate) low_watermark: usize,
}

impl Watermark {
    pub(super) fn new(level: usize) -> Self {
        // An empty reservoir that starts has not fallen below anything.
        Self { level, is_below: true, is_announcing: false }
    }
}

impl<E: Lendable> State<E> {
    /// Compares again, after a change of the number of usable connections or of the level.
    pub(super) fn compare_with_watermark(&mut self) {
        let Watermark { level, is_below, is_announcing } = self.watermark;
        if !self.closed && !is_announcing && (self.usable() < level) != is_below {
            self.effects.add(Effects::WATERMARK);
        }
    }

    /// What to tell the observers, if there is anything, and nobody else is telling them. Call
    /// [`announced`](Self::announced) afterwards. So they hear of the crossings in order, and a crossing that
    /// was undone before they could hear of it does not count.
    pub(crate) fn announce(&mut self) -> Option<Crossing> {
        let (size, level) = (self.usable(), self.watermark.level);
        let is_known = (size < level) == self.watermark.is_below;
        if self.closed || is_known || self.watermark.is_announcing {
            return None;
        }
        self.watermark.is_below = size < level;
        self.watermark.is_announcing = true;
        Some(Crossing { size, low_watermark: level })
    }

    /// The observers were told. Returns what to tell them next.
    pub(crate) fn announced(&mut self) -> Option<Crossing> {
        self.watermark.is_announcing = false;
        self.announce()
    }
}
