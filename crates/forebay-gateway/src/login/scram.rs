//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), the side of the server. Messages in, messages out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::refusal::Refusal;
use crate::users::ScramVerifier;

pub(super) const PLAIN: &str = "SCRAM-SHA-256";
pub(super) const PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The one kind of channel binding that PostgreSQL's clients have.
const BINDING_KIND: &[u8] = b"tls-server-end-point";

/// A login that waits for the client's first message.
pub(super) struct Exchange<'a> {
    /// Of the user, or of nobody.
    pub(super) verifier: ScramVerifier,
    /// Whether the right proof lets the client in. It does not if the verifier is a decoy.
    pub(super) is_genuine: bool,
    /// The hash of the certificate, if this connection has TLS and one that can be bound.
    pub(super) binding: Option<&'a [u8]>,
    /// Of this server: random, printable, without a comma.
    pub(super) nonce: String,
}

/// A login that waits for the client's last message.
pub(super) struct Challenged {
    verifier: ScramVerifier,
    is_genuine: bool,
    client_first_bare: Vec<u8>,
    server_first: Vec<u8>,
    nonce: Vec<u8>,
    /// What the client must repeat in its last message, in base64.
    channel: String,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client has the password. This proves to it that the server has the verifier.
    Proved(Vec<u8>),
    Failed,
}

impl Exchange<'_> {
    /// What the client can choose from.
    pub(super) fn mechanisms(&self) -> &'static [&'static str] {
        if self.binding.is_some() { &[PLUS, PLAIN] } else { &[PLAIN] }
    }

    /// Reads the client's first message. Returns the server's.
    pub(super) fn first(self, mechanism: &[u8], data: &[u8]) -> Result<(Vec<u8>, Challenged), Refusal> {
        let binding = match (mechanism, self.binding) {
            (chosen, _) if chosen == PLAIN.as_bytes() => None,
            (chosen, Some(hash)) if chosen == PLUS.as_bytes() => Some(hash),
            _ => return Err(Refusal::protocol("client selected an invalid SASL authentication mechanism")),
        };
        if data.is_empty() {
            return Err(malformed("The message is empty."));
        }
        if data.contains(&0) {
            return Err(malformed("Message length does not match input length."));
        }
        // gs2-header: channel binding flag, authorization identity, then the rest.
        let mut parts = data.splitn(3, |byte| *byte == b',');
        let (Some(flag), Some(identity), Some(bare)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed("Comma expected, but found another character."));
        };
        match (flag, binding) {
            (b"n", None) => {}
            (b"y", None) if self.binding.is_none() => {}
            // Somebody in between has hidden the better mechanism.
            (b"y", None) => {
                let detail = "The client supports SCRAM channel binding but thinks the server does not.  However, this server does \
                              support channel binding.";
                return Err(Refusal::new("28000", "SCRAM channel binding negotiation error").detail(detail));
            }
            (b"n" | b"y", Some(_)) => {
                let detail = "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.";
                return Err(malformed(detail));
            }
            (flag, Some(_)) if flag.strip_prefix(b"p=") == Some(BINDING_KIND) => {}
            (flag, Some(_)) if flag.starts_with(b"p=") => {
                return Err(Refusal::protocol("unsupported SCRAM channel-binding type"));
            }
            (flag, None) if flag.starts_with(b"p=") => {
                let detail = "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.";
                return Err(malformed(detail));
            }
            _ => return Err(malformed("Unexpected channel-binding flag.")),
        }
        if !identity.is_empty() {
            return Err(if identity.starts_with(b"a=") {
                Refusal::new("0A000", "client uses authorization identity, but it is not supported")
            } else {
                malformed("Unexpected attribute in client-first-message.")
            });
        }
        let client_nonce = client_nonce(bare)?;
        let header_length = flag.len() + 2;
        let mut channel = data[..header_length].to_vec();
        channel.extend(binding.unwrap_or_default());
        let nonce = [client_nonce, self.nonce.as_bytes()].concat();
        let salt = STANDARD.encode(self.verifier.salt());
        let mut server_first = b"r=".to_vec();
        server_first.extend(&nonce);
        server_first.extend(format!(",s={salt},i={}", self.verifier.iterations()).into_bytes());
        let challenged = Challenged {
            verifier: self.verifier,
            is_genuine: self.is_genuine,
            client_first_bare: bare.to_vec(),
            server_first: server_first.clone(),
            nonce,
            channel: STANDARD.encode(channel),
        };
        Ok((server_first, challenged))
    }
}

/// The nonce in `n=user,r=nonce`. The name is not read: the one in the start-up message counts.
fn client_nonce(bare: &[u8]) -> Result<&[u8], Refusal> {
    let mut attributes = bare.split(|byte| *byte == b',');
    let name = attributes.next().unwrap_or_default();
    if name.starts_with(b"m=") {
        return Err(Refusal::new("0A000", "client requires an unsupported SCRAM extension"));
    }
    if !name.starts_with(b"n=") {
        return Err(malformed("Attribute \"n\" expected."));
    }
    let nonce = attributes.next().and_then(|attribute| attribute.strip_prefix(b"r="));
    let nonce = nonce.ok_or_else(|| malformed("Attribute \"r\" expected."))?;
    if nonce.is_empty() || !nonce.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::protocol("non-printable characters in SCRAM nonce"));
    }
    // More attributes are extensions that the client does not insist on.
    Ok(nonce)
}

impl Challenged {
    /// Reads the client's last message, which proves that it has the password.
    pub(super) fn finish(self, data: &[u8]) -> Result<Outcome, Refusal> {
        if data.contains(&0) {
            return Err(malformed("Message length does not match input length."));
        }
        let Some(at) = data.windows(3).rposition(|window| window == b",p=") else {
            return Err(malformed("Attribute \"p\" expected."));
        };
        let (unproved, proof) = (&data[..at], &data[at + 3..]);
        let mut attributes = unproved.split(|byte| *byte == b',');
        let channel = attributes.next().and_then(|attribute| attribute.strip_prefix(b"c="));
        let channel = channel.ok_or_else(|| malformed("Attribute \"c\" expected."))?;
        let nonce = attributes.next().and_then(|attribute| attribute.strip_prefix(b"r="));
        let nonce = nonce.ok_or_else(|| malformed("Attribute \"r\" expected."))?;
        let proof = STANDARD.decode(proof).ok().and_then(|proof| proof.try_into().ok());
        let proof = proof.ok_or_else(|| malformed("Malformed proof in client-final-message."))?;
        if channel != self.channel.as_bytes() {
            return Err(Refusal::new("28000", "SCRAM channel binding check failed"));
        }
        if nonce != self.nonce {
            return Err(Refusal::protocol("invalid SCRAM response").detail("Nonce does not match."));
        }
        let message: [&[u8]; 5] = [&self.client_first_bare, b",", &self.server_first, b",", unproved];
        // Everything is computed in each case, so that a decoy takes as long as a verifier.
        let proved = self.verifier.verify(&message, &proof);
        let signature = STANDARD.encode(self.verifier.server_signature(&message));
        if proved & self.is_genuine {
            Ok(Outcome::Proved(format!("v={signature}").into_bytes()))
        } else {
            Ok(Outcome::Failed)
        }
    }
}

fn malformed(detail: &str) -> Refusal {
    Refusal::protocol("malformed SCRAM message").detail(detail)
}
