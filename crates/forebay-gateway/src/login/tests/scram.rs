//! What a login with a password tells, and what it does not.

use super::super::{Accepted, LoginError, LoginShared, Peer, Reason};
use super::guest::{Outcome, visit};
use super::{answer, policy, shared, start};
use crate::config::Authentication;
use crate::users::SIGNED;

#[tokio::test]
async fn the_right_password_opens() {
    let shared = shared(policy(Authentication::Scram));
    let heard = visit(&shared, "app", "secret", |_, _| {}).await;
    let steps: Vec<_> = heard.messages.iter().map(|(kind, body)| (*kind, body[3])).collect();
    assert_eq!(steps, [(b'R', 10), (b'R', 11), (b'R', 12), (b'R', 0)]);
    // All of the end goes out with the greeting.
    let Ok(Outcome::Client { unsent, unread }) = heard.login else { panic!("{:?}", heard.login) };
    assert!(unsent.len() > 9 && unread.is_empty());
}

/// A name that does not exist, one that does, and one that may not come from here: the same messages of the same lengths, the same
/// words, and the same work.
#[tokio::test]
async fn nothing_tells_whether_a_user_exists() {
    let shared = shared(policy(Authentication::Scram));
    let mut seen = Vec::new();
    for name in ["app", "nop", "far"] {
        let before = SIGNED.get();
        let heard = visit(&shared, name, "wrong", |_, _| {}).await;
        let work = SIGNED.get() - before;
        let Err(LoginError::Refused { code: "28P01", .. }) = heard.login else { panic!("{:?}", heard.login) };
        let shapes: Vec<_> = heard.messages.iter().map(|(kind, body)| (*kind, body.len())).collect();
        let (_, error) = heard.messages.last().unwrap();
        let error = String::from_utf8_lossy(error).replace(name, "...");
        let (_, challenge) = &heard.messages[1];
        let iterations = String::from_utf8_lossy(challenge).rsplit(',').next().unwrap().to_owned();
        seen.push((shapes, error, iterations, work));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
    assert_eq!(seen[0].2, "i=2");
}

/// psql asks its user for a password only when it is asked for one, and leaves until it has it. The log has the reason if none would do.
/// The client learns nothing by it.
#[tokio::test]
async fn who_leaves_at_the_password_is_logged_if_none_would_do() {
    let shared = shared(policy(Authentication::Scram));
    let leave = async |name: &str, sent: &[u8]| {
        let hello = start(3 << 16, &[("user", name)]);
        let (left, said) = answer(&shared, Peer::Unix, &[&hello, sent].concat()).await;
        (left, said.len())
    };
    let response = b"p\0\0\0\x36SCRAM-SHA-256\0\0\0\0\x20n,,n=,r=aaaaaaaaaaaaaaaaaaaaaaaa";
    for sent in [&b""[..], response] {
        let (left, genuine) = leave("app", sent).await;
        assert!(matches!(left, Ok(Accepted::Gone)), "{left:?}");
        for (name, reason) in [("nop", Reason::NoUser), ("far", Reason::Network)] {
            let (left, length) = leave(name, sent).await;
            let Err(error @ LoginError::Left { .. }) = left else { panic!("{left:?}") };
            assert_eq!(error.label(), "authentication");
            assert!(error.to_string().starts_with(&format!("\"{name}\" left")), "{error}");
            assert!(error.to_string().contains(&reason.to_string()), "{error}");
            assert_eq!(length, genuine);
        }
    }
    // So has it for who breaks off the exchange in another way. The words are the same in each case.
    for (name, expected) in [("app", None), ("nop", Some(Reason::NoUser))] {
        let (refused, _) = leave(name, b"p\0\0\0\x05x").await;
        let Err(LoginError::Refused { code: "08P01", reason, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, expected);
    }
}

/// As for a user that exists, the salt is the same each time, in every process and after a reload; and each name has its own.
#[tokio::test]
async fn a_user_that_does_not_exist_has_a_salt_too() {
    let salt = async |shared: &LoginShared, name: &str| {
        let heard = visit(shared, name, "wrong", |_, _| {}).await;
        let challenge = String::from_utf8_lossy(&heard.messages[1].1).into_owned();
        challenge.split(",s=").nth(1).unwrap().split(',').next().unwrap().to_owned()
    };
    let (one, other) = (shared(policy(Authentication::Scram)), shared(policy(Authentication::Scram)));
    let first = salt(&one, "nobody").await;
    assert_eq!(first.len(), salt(&one, "app").await.len());
    assert_eq!(first, salt(&one, "nobody").await);
    assert_eq!(first, salt(&other, "nobody").await);
    assert_ne!(first, salt(&one, "nobodx").await);
}

/// Each change is refused, and with the right words if it is the client's mistake.
#[tokio::test]
async fn a_message_that_is_changed_is_refused() {
    let shared = shared(policy(Authentication::Scram));
    let cases: [(usize, &str, &str, &str); 16] = [
        (0, "SCRAM-SHA-256\0", "SCRAM-SHA-512\0", "invalid SASL authentication mechanism"),
        (0, "SCRAM-SHA-256\0", "SCRAM-SHA-256-PLUS\0", "invalid SASL authentication mechanism"),
        (0, "n,,", "p=tls-unique,,", "malformed SCRAM message"),
        (0, "n,,", "p=tls-server-end-point,,", "malformed SCRAM message"),
        (0, "n,,", "x,,", "malformed SCRAM message"),
        (0, "n,,", "n,a=admin,", "client uses authorization identity"),
        (0, "n,,", "n,x,", "malformed SCRAM message"),
        (0, "n=,", "m=x,n=,", "client requires an unsupported SCRAM extension"),
        (0, "n=,", "u=,", "malformed SCRAM message"),
        (0, ",r=", ",r=\u{7}", "non-printable characters in SCRAM nonce"),
        (0, ",r=", ",x=", "malformed SCRAM message"),
        (1, "c=biws", "c=eSws", "SCRAM channel binding check failed"),
        (1, ",r=", ",r=x", "invalid SCRAM response"),
        (1, ",p=", ",p=AAAA", "malformed SCRAM message"),
        (1, ",p=", ",q=", "malformed SCRAM message"),
        // An extension is not read, but it is a part of what is proved.
        (1, ",p=", ",x=y,p=", "password authentication failed"),
    ];
    for (at, from, to, words) in cases {
        let mut changed = false;
        let heard = visit(&shared, "app", "secret", |step, message| {
            if step == at {
                let place = message.windows(from.len()).position(|part| part == from.as_bytes());
                let place = place.unwrap_or_else(|| panic!("{from} in {message:?}"));
                message.splice(place..place + from.len(), to.bytes());
                fix_lengths(message, at == 0);
                changed = true;
            }
        })
        .await;
        let Err(LoginError::Refused { message, .. }) = heard.login else { panic!("{to}: {:?}", heard.login) };
        assert!(changed && message.contains(words), "{to}: {message}");
    }
    assert_eq!((shared.admissions().clients(), shared.admissions().logins()), (0, 0));
}

/// Sets the length of a message, and of the data in a first one.
pub(super) fn fix_lengths(message: &mut [u8], is_first: bool) {
    let length = u32::try_from(message.len() - 1).unwrap();
    message[1..5].copy_from_slice(&length.to_be_bytes());
    if is_first {
        let end = 5 + message[5..].iter().position(|byte| *byte == 0).unwrap();
        let length = u32::try_from(message.len() - end - 5).unwrap();
        message[end + 1..end + 5].copy_from_slice(&length.to_be_bytes());
    }
}
