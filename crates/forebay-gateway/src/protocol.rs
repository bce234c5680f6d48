//! PostgreSQL's protocol, version 3: what both directions share. Frame headers, and writers of the frames that the gateway sends itself.

mod error;
pub mod write;

pub(crate) use error::ErrorFields;
pub use error::{ServerError, Severity};

/// How long a header is: the type and the length.
pub const HEADER: usize = 5;

/// The type of a frame and the length of the whole frame, its type included. None if `bytes` are not a whole header.
///
/// # Errors
///
/// If the length is shorter than its own four bytes, or longer than PostgreSQL ever sends.
pub fn header(bytes: &[u8]) -> Result<Option<(u8, usize)>, BadLength> {
    let Some((&[kind, a, b, c, d], _)) = bytes.split_first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]);
    if !(4..=LONGEST).contains(&length) {
        return Err(BadLength);
    }
    Ok(Some((kind, length as usize + 1)))
}

/// A gigabyte: neither side accepts more.
const LONGEST: u32 = 0x3fff_ffff;

/// A length that cannot be one: the stream is out of sync, or was never this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// The bytes up to a zero byte, and what follows it.
#[must_use]
pub fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// The types of the frames that a client sends.
pub mod client {
    /// Bind.
    pub const BIND: u8 = b'B';
    /// Close.
    pub const CLOSE: u8 = b'C';
    /// CopyData. Servers send it, too.
    pub const COPY_DATA: u8 = b'd';
    /// CopyDone. Servers send it, too.
    pub const COPY_DONE: u8 = b'c';
    /// CopyFail.
    pub const COPY_FAIL: u8 = b'f';
    /// Describe.
    pub const DESCRIBE: u8 = b'D';
    /// Execute.
    pub const EXECUTE: u8 = b'E';
    /// Flush.
    pub const FLUSH: u8 = b'H';
    /// FunctionCall.
    pub const FUNCTION_CALL: u8 = b'F';
    /// Parse.
    pub const PARSE: u8 = b'P';
    /// Query.
    pub const QUERY: u8 = b'Q';
    /// Sync.
    pub const SYNC: u8 = b'S';
    /// Terminate.
    pub const TERMINATE: u8 = b'X';
}

/// The types of the frames that a server sends.
pub mod server {
    /// BackendKeyData.
    pub const BACKEND_KEY_DATA: u8 = b'K';
    /// BindComplete.
    pub const BIND_COMPLETE: u8 = b'2';
    /// CloseComplete.
    pub const CLOSE_COMPLETE: u8 = b'3';
    /// CommandComplete.
    pub const COMMAND_COMPLETE: u8 = b'C';
    /// CopyBothResponse.
    pub const COPY_BOTH: u8 = b'W';
    /// CopyData.
    pub const COPY_DATA: u8 = b'd';
    /// CopyDone.
    pub const COPY_DONE: u8 = b'c';
    /// CopyInResponse.
    pub const COPY_IN: u8 = b'G';
    /// CopyOutResponse.
    pub const COPY_OUT: u8 = b'H';
    /// DataRow.
    pub const DATA_ROW: u8 = b'D';
    /// EmptyQueryResponse.
    pub const EMPTY_QUERY: u8 = b'I';
    /// ErrorResponse.
    pub const ERROR: u8 = b'E';
    /// FunctionCallResponse.
    pub const FUNCTION_RESULT: u8 = b'V';
    /// NoData.
    pub const NO_DATA: u8 = b'n';
    /// NoticeResponse.
    pub const NOTICE: u8 = b'N';
    /// NotificationResponse.
    pub const NOTIFICATION: u8 = b'A';
    /// ParameterDescription.
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    /// ParameterStatus.
    pub const PARAMETER_STATUS: u8 = b'S';
    /// ParseComplete.
    pub const PARSE_COMPLETE: u8 = b'1';
    /// PortalSuspended.
    pub const PORTAL_SUSPENDED: u8 = b's';
    /// ReadyForQuery.
    pub const READY_FOR_QUERY: u8 = b'Z';
    /// RowDescription.
    pub const ROW_DESCRIPTION: u8 = b'T';
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_gives_the_type_and_the_length_of_the_frame() {
        assert_eq!(header(b"Q\0\0\0\x08abc\0"), Ok(Some((b'Q', 9))));
        assert_eq!(header(b"Q\0\0\0"), Ok(None));
        assert_eq!(header(b"Q\0\0\0\x03"), Err(BadLength));
        assert_eq!(header(b"Q\xff\0\0\x03"), Err(BadLength));
    }
}
