//! Whether a statement that failed is sent again.

use crate::error::{Error, Result};

/// How often a statement that failed is sent again.
pub(crate) struct Patience {
    /// It is known to read only, and may be run a second time, once.
    may_repeat: bool,
    /// Connections that may turn out to be closed before anything is sent: each in the pool may.
    unsent: usize,
}

impl Patience {
    /// `may_repeat`: whether it is known to read only. In a pool of `max_size`.
    pub(crate) fn new(may_repeat: bool, max_size: usize) -> Self {
        Self { may_repeat, unsent: max_size + 1 }
    }

    /// The error, unless it may be tried again. `is_begun`: the caller has seen something of it.
    pub(crate) fn bear(&mut self, error: Error, is_begun: bool) -> Result<()> {
        if !error.is_of_the_way() {
            return Err(error);
        }
        if error.is_harmless() && self.unsent > 0 {
            self.unsent -= 1;
        } else if self.may_repeat && !is_begun {
            self.may_repeat = false;
        } else {
            return Err(error);
        }
        tracing::debug!(%error, "statement is sent again on another connection");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(may_have_run: bool) -> Error {
        Error::Transport { message: "broken off".into(), may_have_run }
    }

    #[test]
    fn a_read_is_repeated_once_and_a_write_never() {
        let mut read = Patience::new(true, 1);
        assert!(read.bear(broken(true), false).is_ok());
        assert!(read.bear(broken(true), false).is_err(), "once");
        assert!(Patience::new(true, 1).bear(broken(true), true).is_err(), "not after its first batch");
        assert!(Patience::new(false, 1).bear(broken(true), false).is_err());
    }

    #[test]
    fn what_was_never_sent_is_sent_again_as_often_as_there_are_connections() {
        let mut write = Patience::new(false, 2);
        for _ in 0..3 {
            assert!(write.bear(broken(false), false).is_ok());
        }
        assert!(write.bear(broken(false), false).is_err());
    }

    #[test]
    fn what_the_server_refuses_is_not_repeated() {
        for code in [crate::Code::Internal, crate::Code::InvalidArgument, crate::Code::DeadlineExceeded] {
            let refused = Error::Server { code, message: String::new() };
            assert!(Patience::new(true, 1).bear(refused, false).is_err());
        }
        assert!(Patience::new(true, 1).bear(Error::Cancelled { may_have_run: true }, false).is_err());
    }
}
