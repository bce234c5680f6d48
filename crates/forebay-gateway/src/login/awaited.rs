//! What a login waits for.

use std::fmt;

/// What a login waits for from its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A first packet, whatever it asks for.
    FirstPacket,
    /// The handshake of TLS.
    Tls,
    /// The start-up packet, behind a request for encryption.
    StartUp,
    /// The proof of its password.
    Password,
}

/// That it did not come.
impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstPacket => "no first packet came",
            Self::Tls => "the handshake of TLS was not completed",
            Self::StartUp => "no start-up packet came behind the request for encryption",
            Self::Password => "the password was not proved",
        })
    }
}
