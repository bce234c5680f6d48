//! SCRAM verifiers: what a server keeps of a password.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// A SHA-256 hash.
pub(crate) type Hash = [u8; 32];

/// The iterations of PostgreSQL and PgBouncer.
pub const ITERATIONS: u32 = 4_096;

/// A verifier that demands more of clients is a mistake, or an attack on them.
const MOST_ITERATIONS: u32 = 10_000_000;

const MECHANISM: &str = "SCRAM-SHA-256";

/// What the gateway keeps of a password (RFC 5802). The password cannot be computed from it, but who has it can pose as the
/// server, so it is a secret: `Debug` does not show it.
///
/// It has the format of PostgreSQL's `pg_authid.rolpassword` and PgBouncer's `userlist.txt`:
/// `SCRAM-SHA-256$4096:salt$StoredKey:ServerKey`.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Hash,
    server_key: Hash,
}

/// What a server shows of a verifier to everybody who knows the name, but for the salt itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VerifierShape {
    iterations: u32,
    salt_length: usize,
}

impl VerifierShape {
    /// That of a verifier as `add-user` makes it.
    const USUAL: Self = Self { iterations: ITERATIONS, salt_length: 16 };

    /// The one for a name that does not exist. Each is as frequent among such names as among users. As they are in order, and the name
    /// chooses a place between the first and the last, few names get another one when a user is added.
    fn choose(key: &Hash, name: &str, shapes: &[Self]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = sign(key, &[b"shape", name.as_bytes()]);
        let place = u128::from(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
        let index = usize::try_from((place * shapes.len() as u128) >> 64).unwrap_or(0);
        shapes.get(index).copied().unwrap_or(Self::USUAL)
    }
}

/// Not a verifier. It does not say which text it was, as that may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a verifier has the form SCRAM-SHA-256$4096:salt$StoredKey:ServerKey; `forebay gateway add-user` makes one"
)]
pub struct InvalidVerifier;

impl ScramVerifier {
    /// The verifier of a password.
    #[must_use]
    pub fn derive(password: &str, salt: &[u8], iterations: u32) -> Self {
        // As PostgreSQL does: what cannot be prepared is used as it is.
        let prepared = stringprep::saslprep(password).unwrap_or(password.into());
        let salted = salted_password(prepared.as_bytes(), salt, iterations);
        let client_key = sign(&salted, &[b"Client Key"]);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: Sha256::digest(client_key).into(),
            server_key: sign(&salted, &[b"Server Key"]),
        }
    }

    /// One that no password fits, for users that do not exist. The same `key` and `name` give the same salt, as for a real
    /// user. It looks like one of the verifiers with these shapes, which are in order.
    pub(super) fn decoy(key: &Hash, name: &str, shapes: &[VerifierShape]) -> Self {
        let VerifierShape { iterations, salt_length } = VerifierShape::choose(key, name, shapes);
        let mut salt = sign(key, &[b"salt", name.as_bytes()]).to_vec();
        for part in 1_u32.. {
            if salt.len() >= salt_length {
                break;
            }
            salt.extend(sign(key, &[b"more salt", &part.to_be_bytes(), name.as_bytes()]));
        }
        salt.truncate(salt_length);
        // The hash of no known key.
        Self { iterations, salt, stored_key: *key, server_key: *key }
    }

    /// What everybody can see of it.
    pub(super) fn shape(&self) -> VerifierShape {
        VerifierShape { iterations: self.iterations, salt_length: self.salt.len() }
    }

    /// How often the password was hashed.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    pub(crate) fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Whether the client that sent this proof has the password.
    pub(crate) fn verify(&self, auth_message: &[&[u8]], proof: &Hash) -> bool {
        let mut client_key = sign(&self.stored_key, auth_message);
        for (own, sent) in client_key.iter_mut().zip(proof) {
            *own ^= sent;
        }
        let hash: Hash = Sha256::digest(client_key).into();
        let difference = hash.iter().zip(&self.stored_key).fold(0, |sum, (a, b)| sum | (a ^ b));
        // Every byte is compared, wherever the first difference is.
        std::hint::black_box(difference) == 0
    }

    /// What proves to the client that this is its server.
    pub(crate) fn server_signature(&self, auth_message: &[&[u8]]) -> Hash {
        sign(&self.server_key, auth_message)
    }

    /// The text for a users file. It is a secret.
    #[must_use]
    pub fn to_text(&self) -> String {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key[..], &self.server_key[..]].map(|part| STANDARD.encode(part));
        format!("{MECHANISM}${}:{salt}${stored}:{server}", self.iterations)
    }
}

impl FromStr for ScramVerifier {
    type Err = InvalidVerifier;

    fn from_str(text: &str) -> Result<Self, InvalidVerifier> {
        let read = || -> Option<Self> {
            let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
            let (parameters, keys) = rest.split_once('$')?;
            let (iterations, salt) = parameters.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let iterations = iterations.parse().ok().filter(|count| (1..=MOST_ITERATIONS).contains(count))?;
            let salt = STANDARD.decode(salt).ok().filter(|salt| (1..=1_024).contains(&salt.len()))?;
            let key = |text: &str| STANDARD.decode(text).ok()?.try_into().ok();
            Some(Self { iterations, salt, stored_key: key(stored)?, server_key: key(server)? })
        };
        read().ok_or(InvalidVerifier)
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramVerifier({} iterations)", self.iterations)
    }
}

#[cfg(test)]
thread_local! {
    /// How much was signed: the work of a login, counted instead of timed.
    pub(crate) static SIGNED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// HMAC-SHA-256 of the parts.
pub(crate) fn sign(key: &Hash, parts: &[&[u8]]) -> Hash {
    #[cfg(test)]
    SIGNED.set(SIGNED.get() + 1);
    let mut mac = keyed(key);
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        // Any length is a key; a longer one is hashed first.
        Err(_) => Hmac::<Sha256>::new(&Default::default()),
    }
}

/// PBKDF2 with HMAC-SHA-256, and one block of output.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Hash {
    let mac = keyed(password);
    let mut first = mac.clone();
    first.update(salt);
    first.update(&1_u32.to_be_bytes());
    let mut round: Hash = first.finalize().into_bytes().into();
    let mut sum = round;
    for _ in 1..iterations {
        let mut next = mac.clone();
        next.update(&round);
        round = next.finalize().into_bytes().into();
        for (sum, round) in sum.iter_mut().zip(round) {
            *sum ^= round;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::derive("pencil", &salt, 4_096);
        let message: &[&[u8]] = &[
            b"n=user,r=rOprNGfwEbeRWgbNEkqO",
            b",",
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b",",
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        ];
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let proof: Hash = proof.try_into().unwrap();
        assert!(verifier.verify(message, &proof));
        let signature = STANDARD.encode(verifier.server_signature(message));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        for bit in 0..256 {
            let mut wrong = proof;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!verifier.verify(message, &wrong), "bit {bit}");
        }
        assert!(!ScramVerifier::derive("pencils", &salt, 4_096).verify(message, &proof));
        assert!(!ScramVerifier::derive("pencil", &salt, 4_095).verify(message, &proof));
    }

    /// RFC 7914, section 11. The other example there takes 80,000 iterations; that of SCRAM has 4,096.
    #[test]
    fn the_example_of_pbkdf2() {
        let salted = salted_password(b"passwd", b"salt", 1);
        assert_eq!(salted[..8], [0x55, 0xac, 0x04, 0x6e, 0x56, 0xe3, 0x08, 0x9f]);
    }

    #[test]
    fn the_text_is_read_back_and_mistakes_are_refused() {
        let verifier = ScramVerifier::derive("secret", b"0123456789abcdef", 4_096);
        let text = verifier.to_text();
        assert_eq!(text.parse(), Ok(verifier));
        for (from, to) in [
            ("SCRAM-SHA-256", "SCRAM-SHA-1"),
            ("SCRAM-SHA-256$", "SCRAM-SHA-256"),
            ("4096", "0"),
            ("4096", "99999999"),
            ("4096:", "4096"),
            ("MDEyMzQ1Njc4OWFiY2RlZg==", "!"),
            ("MDEyMzQ1Njc4OWFiY2RlZg==", ""),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert_ne!(wrong, text);
            assert_eq!(wrong.parse::<ScramVerifier>(), Err(InvalidVerifier), "{wrong}");
        }
        assert_eq!(text[..text.len() - 4].parse::<ScramVerifier>(), Err(InvalidVerifier));
        assert_eq!("md5f10f0e6c2c7b9c8e".parse::<ScramVerifier>(), Err(InvalidVerifier));
    }

    /// Prepared as RFC 4013 says: a soft hyphen is dropped, and letters of compatibility are replaced.
    #[test]
    fn passwords_are_prepared() {
        let same =
            |a: &str, b: &str| ScramVerifier::derive(a, b"salt", 2) == ScramVerifier::derive(b, b"salt", 2);
        assert!(same("I\u{ad}X", "IX") && same("\u{2168}", "IX"));
        // A control character is forbidden, so the password is used as it is.
        assert!(!same("\u{7}", "") && !same("\u{7}", "\u{8}"));
    }

    /// Each shape of a real verifier is seen with unknown names, as often as with users, and always the same one with the same name.
    #[test]
    fn decoys_look_like_the_verifiers_of_users() {
        let of = |iterations, salt_length| VerifierShape { iterations, salt_length };
        let shapes = [of(4_096, 16), of(4_096, 16), of(4_096, 16), of(20_000, 100)];
        let key = [7; 32];
        let mut few = 0;
        for number in 0..1_000 {
            let name = format!("user{number}");
            let decoy = ScramVerifier::decoy(&key, &name, &shapes);
            assert_eq!(decoy, ScramVerifier::decoy(&key, &name, &shapes));
            assert_eq!(
                (decoy.iterations, decoy.salt.len()),
                if decoy.iterations == 4_096 { (4_096, 16) } else { (20_000, 100) }
            );
            few += usize::from(decoy.iterations == 20_000);
        }
        assert!((200..300).contains(&few), "{few}");
        // The parts of a long salt differ.
        let long = ScramVerifier::decoy(&key, "x", &[of(1, 100)]).salt;
        assert!(long[..32] != long[32..64] && long[32..64] != long[64..96]);
        assert_eq!(ScramVerifier::decoy(&key, "x", &[]).shape(), VerifierShape::USUAL);
    }

    #[test]
    fn debug_shows_no_key() {
        let verifier = ScramVerifier::derive("secret", b"salt", 2);
        assert_eq!(format!("{verifier:?}"), "ScramVerifier(2 iterations)");
    }
}
