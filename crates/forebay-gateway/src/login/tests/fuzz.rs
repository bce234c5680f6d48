//! Everything that can be sent before a login is complete, at random: nothing panics, nothing is read without limit, and nobody gets
//! in. `FOREBAY_FUZZ_CASES` and `FOREBAY_SEED` choose how many cases, and which.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use forebay::{Rng, Seed};
use tokio::io::ReadBuf;

use super::guest::{Outcome, visit};
use super::scram::fix_lengths;
use super::*;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

fn cases() -> u64 {
    number("FOREBAY_FUZZ_CASES", 5_000)
}

/// The seed of one case. A failure names it.
fn seed(name: &str, case: u64) -> Seed {
    Seed::new(number("FOREBAY_SEED", 42).wrapping_add(case)).fork(name)
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

fn byte(rng: &mut Rng) -> u8 {
    rng.bits().to_le_bytes()[0]
}

/// Changes some bytes: flips, writes, inserts, removes, repeats.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = below(rng, bytes.len() + 1);
        let end = at + below(rng, (bytes.len() - at).min(40) + 1);
        match rng.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => bytes[at] = byte(rng),
            2 => bytes.insert(at, [0, b',', b'=', 0xff, byte(rng)][below(rng, 5)]),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
}

/// A socket on which a client sends these bytes and then zeros or noise without end, in pieces. What is written to it is lost.
struct Flood {
    script: Vec<u8>,
    sent: usize,
    is_endless: bool,
    rng: Rng,
}

impl AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let count = 1 + below(&mut this.rng, buffer.remaining().min(600));
        for _ in 0..count {
            match this.script.get(this.sent) {
                Some(byte) => buffer.put_slice(&[*byte]),
                None if this.is_endless => buffer.put_slice(&[byte(&mut this.rng)]),
                None => break,
            }
            this.sent += 1;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What is sent first: requests, start-up messages, a ClientHello, noise.
fn opening(rng: &mut Rng) -> Vec<u8> {
    let request = |kind| vec![0, 0, 0, 8, 0x04, 0xd2, 0x16, kind];
    let hello =
        || start(3 << 16, &[("user", "app"), ("database", "postgres"), ("options", "-c TimeZone=UTC")]);
    let mut script = match rng.below(8) {
        0 => request(0x2f),
        1 => request(0x30),
        2 => [&[0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e][..], b"12345678"].concat(),
        3 => [request(0x2f), hello()].concat(),
        4 => vec![0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03],
        5 => (0..below(rng, 64)).map(|_| byte(rng)).collect(),
        _ => hello(),
    };
    // What would follow if it were let in, or asked.
    match rng.below(4) {
        0 => script.extend(b"p\0\0\0\x36SCRAM-SHA-256\0\0\0\0\x20n,,n=,r=aaaaaaaaaaaaaaaaaaaaaaaa"),
        1 => script.extend(b"Q\0\0\0\x0dSELECT 1\0"),
        _ => {}
    }
    if rng.below(4) > 0 {
        mutate(rng, &mut script);
    }
    script
}

/// The largest start-up message, or a handshake of TLS, whose messages rustls limits.
const MOST_READ: usize = 200_000;

#[tokio::test]
async fn nobody_gets_in_with_noise_and_little_of_it_is_read() {
    let mut policy = policy(Authentication::Scram);
    policy.tls = Some(certified());
    let shared = shared(policy);
    let near = Peer::Tcp("127.0.0.1:1".parse().unwrap());
    for case in 0..cases() {
        let mut rng = seed("noise", case).rng();
        let script = opening(&mut rng);
        let mut flood =
            Flood { script: script.clone(), sent: 0, is_endless: rng.below(2) == 0, rng: rng.clone() };
        let peer = if rng.below(2) == 0 { Peer::Unix } else { near };
        let login = login(&mut flood, peer, &shared).await;
        assert!(!matches!(login, Ok(Accepted::Client(_))), "case {case}: {script:?}");
        drop(login);
        assert!(flood.sent <= MOST_READ, "case {case}: {} bytes of {script:?}", flood.sent);
        assert_eq!((shared.admissions().clients(), shared.admissions().logins()), (0, 0), "case {case}");
    }
}

/// Who knows the password, and changes a byte of a message, is not let in: everything that was said is a part of the proof. Who does
/// not know it is never let in.
// A message that is cut makes both sides wait; virtual time ends that at once.
#[tokio::test(start_paused = true)]
async fn a_proof_is_of_the_whole_conversation() {
    let shared = shared(policy(Authentication::Scram));
    for case in 0..cases() {
        let mut rng = seed("proof", case).rng();
        let (at, password) = (below(&mut rng, 2), ["secret", "wrong"][below(&mut rng, 2)]);
        let name = ["app", "nobody", "far", "\u{e4}"][below(&mut rng, 8).saturating_sub(4)];
        let mut is_changed = false;
        let heard = visit(&shared, name, password, |step, message| {
            if step != at {
                return;
            }
            let before = message.clone();
            mutate(&mut rng, message);
            // Half of them have the right lengths: they get further.
            if rng.below(2) == 0
                && message.len() > 5
                && (step == 1
                    || message[5..]
                        .iter()
                        .position(|byte| *byte == 0)
                        .is_some_and(|end| end + 10 <= message.len()))
            {
                fix_lengths(message, step == 0);
            }
            // What follows the message is not a part of it.
            let length = message.get(1..5).map(|length| u32::from_be_bytes(length.try_into().unwrap()));
            let own = message.get(..1 + usize::try_from(length.unwrap_or(0)).unwrap());
            is_changed = own != Some(&before[..]);
        })
        .await;
        let is_in = matches!(heard.login, Ok(Outcome::Client { .. }));
        let may_be_in = password == "secret" && name == "app" && !is_changed;
        assert!(!is_in || may_be_in, "case {case}: {:?}", heard.login);
        drop(heard);
        assert_eq!((shared.admissions().clients(), shared.admissions().logins()), (0, 0), "case {case}");
    }
}

/// The readers of files and certificates, too, take anything.
#[test]
fn certificates_and_files_of_noise_are_read_without_harm() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let genuine = certified.cert.der().to_vec();
    assert_eq!(common_name(&genuine).as_deref(), Some("rcgen self signed cert"));
    let users = "[[user]]\nname = 'a'\nrole = 'r'\npassword = 'SCRAM-SHA-256$1:AA==$x:y'\nallow = ['unix']\n";
    for case in 0..cases() {
        let mut rng = seed("files", case).rng();
        let mut certificate = genuine.clone();
        mutate(&mut rng, &mut certificate);
        let _ = (common_name(&certificate), der::binding_hash(&certificate));
        let mut text = users.as_bytes().to_vec();
        mutate(&mut rng, &mut text);
        let text = String::from_utf8_lossy(&text);
        assert!(Users::parse("users.toml", &text, &UserDefaults::default()).is_err(), "case {case}: {text}");
    }
}
