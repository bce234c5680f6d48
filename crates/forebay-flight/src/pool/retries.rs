//! Whether a failed statement is sent again.

use crate::error::{Error, Result};

/// How often a failed statement is sent again.
pub(crate) struct Retries {
    /// It is read-only, and may run a second time.
    may_repeat: bool,
    /// Connections that may permit out to be closed before anything is sent: each in the pool may.
    unsent: usize,
}

impl Retries {
    pub(crate) fn new(may_repeat: bool, max_size: usize) -> Self {
        Self { may_repeat, unsent: max_size + 1 }
    }

    /// Returns the error, unless the statement may be sent again. `is_begun`: the caller has got a part of
    /// the result.
    pub(crate) fn allow(&mut self, error: Error, is_begun: bool) -> Result<()> {
        if !error.is_connection_failure() {
            return Err(error);
        }
        if error.is_not_executed() && self.unsent > 0 {
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
        Error::transport("broken off", may_have_run)
    }

    #[test]
    fn a_read_is_retried_once_and_a_write_never() {
        let mut read = Retries::new(true, 1);
        assert!(read.allow(broken(true), false).is_ok());
        assert!(read.allow(broken(true), false).is_err(), "once");
        assert!(Retries::new(true, 1).allow(broken(true), true).is_err(), "not after its first batch");
        assert!(Retries::new(false, 1).allow(broken(true), false).is_err());
    }

    #[test]
    fn an_unsent_statement_is_retried_once_per_connection_and_once_more() {
        let mut write = Retries::new(false, 2);
        for _ in 0..3 {
            assert!(write.allow(broken(false), false).is_ok());
        }
        assert!(write.allow(broken(false), false).is_err());
    }

    #[test]
    fn a_refused_statement_is_not_retried() {
        for code in [crate::Code::Internal, crate::Code::InvalidArgument, crate::Code::DeadlineExceeded] {
            let refused = Error::server(code, "");
            assert!(Retries::new(true, 1).allow(refused, false).is_err());
        }
        assert!(Retries::new(true, 1).allow(Error::Cancelled { may_have_run: true }, false).is_err());
    }
}
