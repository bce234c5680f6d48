//! Logins over a pipe in memory, byte by byte.

mod fuzz;
mod guest;
mod scram;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay::rt;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};

use super::*;
use crate::users::{ScramVerifier, UserDefaults, Users};

pub(super) fn policy(auth: Authentication) -> LoginPolicy {
    // Few iterations: they are the client's work, and a test has thousands of clients.
    let verifier = ScramVerifier::derive("secret", b"0123456789abcdef", 2).to_text();
    let text = format!(
        "decoy_key = '{}'\n[[user]]\nname = 'app'\nrole = 'writer'\npassword = '{verifier}'\nmax_clients = 2\n[[user]]\n\
         name = 'far'\nrole = 'writer'\npassword = '{verifier}'\nallow = ['10.0.0.0/8']\n",
        STANDARD.encode([7; 32])
    );
    LoginPolicy {
        auth,
        users: Users::parse("users.toml", &text, &UserDefaults::default()).unwrap(),
        tls: None,
        tls_required: true,
        limits: ClientLimits {
            clients: 100,
            clients_per_address: None,
            logins: 100,
            logins_per_address: None,
        },
        timeout: Duration::from_secs(30),
        ignored_parameters: Vec::new(),
        private_files: Vec::new(),
    }
}

/// A certificate with its key.
pub(super) fn certified() -> TlsServer {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    TlsServer::new(vec![own.cert.der().clone()], key.into(), None).unwrap()
}

pub(super) fn shared(policy: LoginPolicy) -> LoginShared {
    LoginShared::new(policy, rt::current().unwrap())
}

/// A start-up message.
pub(super) fn start(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend(format!("{name}\0{value}\0").into_bytes());
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap();
    [&length.to_be_bytes()[..], &body].concat()
}

/// What a login makes of these bytes, and everything that it answers.
async fn answer(
    shared: &LoginShared,
    peer: Peer,
    sent: &[u8],
) -> (Result<Accepted<DuplexStream>, LoginError>, Vec<u8>) {
    let (mut near, far) = duplex(64 << 10);
    near.write_all(sent).await.unwrap();
    near.shutdown().await.unwrap();
    let login = login(far, peer, shared).await;
    let mut said = Vec::new();
    match login {
        Ok(Accepted::Client(client)) => {
            said.extend(&client.unsent);
            (Ok(Accepted::Client(client)), said)
        }
        other => {
            near.read_to_end(&mut said).await.unwrap();
            (other, said)
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "|")
}

#[tokio::test]
async fn trust_lets_in_whom_the_file_names() {
    let shared = shared(policy(Authentication::Trust));
    let hello = start(3 << 16, &[("user", "app"), ("application_name", "mine")]);
    let (accepted, said) = answer(&shared, Peer::Unix, &[&hello[..], b"Q..."].concat()).await;
    let Ok(Accepted::Client(client)) = accepted else { panic!("{accepted:?}") };
    assert_eq!(said, b"R\0\0\0\x08\0\0\0\0");
    assert_eq!((client.user.role.as_str(), client.unread.as_slice()), ("writer", &b"Q..."[..]));
    assert_eq!(client.start.iter().collect::<Vec<_>>(), [("application_name", "mine")]);
    assert_eq!((shared.admissions().clients(), shared.admissions().logins()), (1, 0));
    drop(client);
    assert_eq!(shared.admissions().clients(), 0);
    let (refused, said) = answer(&shared, Peer::Unix, &start(3 << 16, &[("user", "eve")])).await;
    assert!(matches!(refused, Err(LoginError::Refused { code: "28000", .. })), "{refused:?}");
    assert!(text(&said).contains("SFATAL|VFATAL|C28000|Muser \"eve\" is not in the users file of the gateway|H`forebay gateway add-user` adds one.||"), "{}", text(&said));
}

#[tokio::test]
async fn limits_are_told_in_the_words_of_postgresql() {
    let mut policy = policy(Authentication::Trust);
    policy.limits.clients = 3;
    let shared = shared(policy);
    let hello = start(3 << 16, &[("user", "app")]);
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(answer(&shared, Peer::Unix, &hello).await.0.unwrap());
    }
    let (refused, said) = answer(&shared, Peer::Unix, &hello).await;
    assert!(matches!(refused, Err(LoginError::Crowded { crowd: Crowd::ClientsOfUser, .. })), "{refused:?}");
    assert!(text(&said).contains("C53300|Mtoo many connections for role \"app\"|"), "{}", text(&said));
    clients.clear();
    let mut policy = (*shared.policy()).clone();
    policy.limits.logins = 0;
    // A reload holds for the next login.
    shared.replace(policy);
    let (refused, said) = answer(&shared, Peer::Unix, &hello).await;
    assert!(
        matches!(refused, Err(LoginError::Crowded { crowd: Crowd::Logins, user: Some(_) })),
        "{refused:?}"
    );
    assert!(text(&said).contains("Msorry, too many clients already|"), "{}", text(&said));
}

/// Who asks for encryption first takes no error for an answer. Who says nothing is told all the same.
#[tokio::test(start_paused = true)]
async fn who_finds_no_place_may_ask_for_encryption_first() {
    let mut policy = policy(Authentication::Trust);
    policy.limits.logins = 0;
    let shared = shared(policy);
    let client = async |sent: &[&[u8]]| {
        let (mut near, far) = duplex(1 << 10);
        let began = shared.runtime().now();
        let said = async {
            let mut said = Vec::new();
            for message in sent {
                near.write_all(message).await.unwrap();
                if message.len() == 8 {
                    said.push(near.read_u8().await.unwrap());
                }
            }
            near.read_to_end(&mut said).await.unwrap();
            text(&said)
        };
        let (login, said) = tokio::join!(login(far, Peer::Unix, &shared), said);
        assert!(matches!(login, Err(LoginError::Crowded { crowd: Crowd::Logins, .. })), "{login:?}");
        (said, shared.runtime().now().since(began))
    };
    let request = |kind| [0, 0, 0, 8, 0x04, 0xd2, 0x16, kind];
    let hello = start(3 << 16, &[("user", "app")]);
    let (said, waited) = client(&[&request(0x30), &request(0x2f), &hello]).await;
    assert!(said.starts_with("NNE") && said.contains("C53300|"), "{said}");
    assert_eq!(waited, Duration::ZERO);
    for silent in [&[][..], &[&[0, 0][..]]] {
        let (said, waited) = client(silent).await;
        assert!(said.contains("C53300|Msorry, too many clients already|"), "{said}");
        assert_eq!(waited, Duration::from_secs(1));
    }
}

#[tokio::test]
async fn clients_of_other_machines_use_tls_and_cannot_be_trusted() {
    let far = Peer::Tcp("10.0.0.1:1".parse().unwrap());
    let hello = start(3 << 16, &[("user", "app")]);
    let shared = shared(policy(Authentication::Trust));
    let (refused, said) = answer(&shared, far, &hello).await;
    assert!(matches!(refused, Err(LoginError::Refused { code: "28000", .. })), "{refused:?}");
    assert!(text(&said).contains("Mconnection requires TLS|HSet sslmode"), "{}", text(&said));
    let mut policy = (*shared.policy()).clone();
    policy.tls_required = false;
    shared.replace(policy);
    let (left, said) = answer(&shared, far, &hello).await;
    assert!(matches!(left, Ok(Accepted::Gone)), "{left:?}");
    assert!(text(&said).contains("SCRAM-SHA-256|"), "a password is asked for: {}", text(&said));
}

/// A line of a log for each client that is refused, however long its words are.
#[tokio::test]
async fn what_clients_send_is_cut_where_it_is_repeated() {
    let (trust, scram) = (shared(policy(Authentication::Trust)), shared(policy(Authentication::Scram)));
    let long = "\u{1}".repeat(9_000);
    let cases: [&[(&str, &str)]; 7] = [
        &[("user", &long)],
        &[("user", "app"), ("database", &long)],
        &[("user", "app"), (&long, "x")],
        &[("user", "app"), ("client_min_messages", &long)],
        &[("user", "app"), ("options", &long)],
        &[("user", "app"), ("options", &format!("-c {long}=1"))],
        &[("user", "app"), ("options", &format!("-c {long}"))],
    ];
    for parameters in cases {
        let (refused, said) = answer(&trust, Peer::Unix, &start(3 << 16, parameters)).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.len() < 900 && said.len() < 400, "{} {}: {text}", text.len(), said.len());
        assert!(text.contains("\\u{1}..."), "{text}");
    }
    let heard = guest::visit(&scram, &long, "x", |_, _| {}).await;
    let Err(error) = heard.login else { panic!("{:?}", heard.login) };
    assert_eq!(
        error.to_string(),
        format!("refused \"{}...\": 28P01 (there is no such user)", "\\u{1}".repeat(63))
    );
}

/// Who can add to what the client sends before TLS begins could otherwise speak for it (CVE-2021-23214).
#[tokio::test]
async fn nothing_is_read_ahead_of_tls() {
    let shared = shared(policy(Authentication::Trust));
    let request = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    let hello = start(3 << 16, &[("user", "app")]);
    let (refused, said) = answer(&shared, Peer::Unix, &[&request[..], &hello].concat()).await;
    assert!(matches!(refused, Err(LoginError::Refused { code: "08P01", .. })), "{refused:?}");
    assert!(text(&said).contains("Mreceived unencrypted data after SSL request|"), "{}", text(&said));
}

#[tokio::test]
async fn requests_for_encryption_are_answered_once() {
    let shared = shared(policy(Authentication::Trust));
    let (mut near, far) = duplex(1 << 10);
    let client = async {
        let mut answers = [0; 2];
        for (index, kind) in [0x2f, 0x30].into_iter().enumerate() {
            near.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, kind]).await.unwrap();
            near.read_exact(&mut answers[index..=index]).await.unwrap();
        }
        near.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await.unwrap();
        (answers, near.read(&mut [0; 9]).await.unwrap())
    };
    let (login, (answers, rest)) = tokio::join!(login(far, Peer::Unix, &shared), client);
    assert!(matches!(login, Err(LoginError::Stranger)), "{login:?}");
    assert_eq!((&answers, rest), (b"NN", 0));
}

#[tokio::test]
async fn who_speaks_something_else_gets_no_answer() {
    let shared = shared(policy(Authentication::Trust));
    for other in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\0\xff", &[0; 20], b"SSH-2.0-x\r\n"] {
        let (refused, said) = answer(&shared, Peer::Unix, other).await;
        assert!(matches!(refused, Err(LoginError::Stranger)), "{refused:?}");
        assert_eq!(said, b"");
    }
    // A health check connects, and goes away.
    assert!(matches!(answer(&shared, Peer::Unix, b"").await.0, Ok(Accepted::Gone)));
    assert!(matches!(answer(&shared, Peer::Unix, &[0, 0]).await.0, Ok(Accepted::Gone)));
}

/// Load balancers and scanners look whether somebody is there, and many of them end the connection by a reset.
#[tokio::test]
async fn who_only_looks_is_not_an_error_however_it_leaves() {
    let mut policy = policy(Authentication::Scram);
    policy.tls = Some(certified());
    let (shared, near) = (shared(policy), Peer::Tcp("127.0.0.1:1".parse().unwrap()));
    let request = |kind| vec![0, 0, 0, 8, 0x04, 0xd2, 0x16, kind];
    for end in [None, Some(io::ErrorKind::ConnectionReset)] {
        for sent in [vec![], request(0x2f), request(0x30)] {
            let socket = Leaving { sent: sent.clone().into(), end };
            let login = login(socket, near, &shared).await;
            assert!(matches!(login, Ok(Accepted::Gone)), "{end:?} {sent:?}: {login:?}");
        }
    }
    // Who has begun to speak is another matter.
    let (mut begins, far) = duplex(64);
    begins.write_all(&request(0x2f)).await.unwrap();
    let client = async {
        begins.read_exact(&mut [0]).await.unwrap();
        begins.write_all(&[0x16]).await.unwrap();
        drop(begins);
    };
    let (begun, ()) = tokio::join!(login(far, near, &shared), client);
    assert!(matches!(begun, Err(LoginError::Tls(_))), "{begun:?}");
    let middle = Leaving { sent: vec![0, 0, 0].into(), end: Some(io::ErrorKind::ConnectionReset) };
    assert!(matches!(login(middle, near, &shared).await, Err(LoginError::Io(_))));
}

/// A client that sends something and leaves, by a reset or not.
#[derive(Debug)]
struct Leaving {
    sent: VecDeque<u8>,
    end: Option<io::ErrorKind>,
}

impl AsyncRead for Leaving {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match (self.sent.is_empty(), self.end) {
            (true, Some(kind)) => return Poll::Ready(Err(kind.into())),
            _ => self.sent.drain(..).for_each(|byte| buffer.put_slice(&[byte])),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Leaving {
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

#[tokio::test]
async fn a_name_is_needed_and_old_protocols_are_refused() {
    let shared = shared(policy(Authentication::Trust));
    for (sent, code) in [
        (start(3 << 16, &[]), "28000"),
        (start(3 << 16, &[("user", "")]), "28000"),
        (start(2 << 16, &[("user", "app")]), "0A000"),
        (start(3 << 16, &[("user", "app"), ("role", "admin")]), "0A000"),
        (start(3 << 16, &[("user", "app"), ("database", "x")]), "3D000"),
    ] {
        let (refused, said) = answer(&shared, Peer::Unix, &sent).await;
        let Err(LoginError::Refused { code: found, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(found, code);
        assert!(text(&said).contains(&format!("C{code}|")));
    }
    assert_eq!(shared.admissions().clients(), 0);
}

/// The log says who it was, if it had said it, and what did not come.
#[tokio::test(start_paused = true)]
async fn a_login_that_takes_too_long_ends() {
    let mut policy = policy(Authentication::Scram);
    policy.tls = Some(certified());
    let (shared, near) = (shared(policy), Peer::Tcp("127.0.0.1:1".parse().unwrap()));
    let request = |kind| vec![0, 0, 0, 8, 0x04, 0xd2, 0x16, kind];
    for (sent, awaited) in [
        (vec![], ": no first packet came"),
        (vec![0, 0], ": no first packet came"),
        (vec![0x16, 3], ": the handshake of TLS was not completed"),
        (request(0x2f), ": the handshake of TLS was not completed"),
        (request(0x30), ": no start-up packet came behind the request for encryption"),
        (start(3 << 16, &[("user", "app")]), " of \"app\": the password was not proved"),
        (start(3 << 16, &[("user", "x")]), " of \"x\": the password was not proved (there is no such user)"),
    ] {
        let (mut client, far) = duplex(1 << 10);
        client.write_all(&sent).await.unwrap();
        let (before, login) = (shared.runtime().now(), login(far, near, &shared).await);
        let Err(error @ LoginError::TimedOut { .. }) = login else { panic!("{login:?}") };
        let (whose, what) = awaited.split_once(':').unwrap();
        assert_eq!(error.to_string(), format!("the login{whose} took too long:{what}"));
        assert_eq!(shared.runtime().now().since(before), Duration::from_secs(30));
        assert_eq!(shared.admissions().logins(), 0);
    }
    // Who does not read why it is refused was refused all the same.
    let (mut client, far) = duplex(8);
    let (login, ()) = tokio::join!(login(far, near, &shared), async {
        client.write_all(&start(2 << 16, &[])).await.unwrap();
        shared.runtime().sleep_until(shared.runtime().now() + Duration::from_secs(60)).await;
    });
    assert!(matches!(login, Err(LoginError::Refused { code: "0A000", .. })), "{login:?}");
}

/// Strangers at the address for peers wait there by themselves, and not for long.
#[tokio::test(start_paused = true)]
async fn who_says_nothing_to_peers_holds_up_no_client() {
    let mut policy = policy(Authentication::Trust);
    policy.limits.logins = 1;
    let shared = shared(policy);
    let (_near, far) = duplex(64);
    let before = shared.runtime().now();
    let silent = async {
        let heard = passed_on(far, Peer::Unix, &shared).await;
        assert!(matches!(heard, Err(LoginError::TimedOut { .. })), "{heard:?}");
        shared.runtime().now().since(before)
    };
    let others = async {
        // It is alone there: another one is not heard.
        let (_near, far) = duplex(64);
        let heard = passed_on(far, Peer::Unix, &shared).await;
        assert!(matches!(heard, Err(LoginError::Crowded { crowd: Crowd::CancelRequests, .. })), "{heard:?}");
        let hello = start(3 << 16, &[("user", "app")]);
        assert!(matches!(answer(&shared, Peer::Unix, &hello).await.0, Ok(Accepted::Client(_))));
    };
    let (waited, ()) = tokio::join!(silent, others);
    assert_eq!(waited, Duration::from_secs(2));
}

/// The future is dropped after each number of polls.
#[tokio::test]
async fn a_login_that_is_dropped_leaves_nothing_behind() {
    let shared = shared(policy(Authentication::Scram));
    for polls in 1..6 {
        let (mut near, far) = duplex(1 << 10);
        let hello = start(3 << 16, &[("user", "app")]);
        let mut login = Box::pin(login(far, Peer::Unix, &shared));
        for part in hello.chunks(hello.len() / 4).take(polls) {
            assert!(
                std::future::poll_fn(|context| std::task::Poll::Ready(
                    login.as_mut().poll(context).is_pending()
                ))
                .await
            );
            near.write_all(part).await.unwrap();
        }
        assert_eq!(shared.admissions().logins(), 1);
        drop(login);
        assert_eq!((shared.admissions().logins(), shared.admissions().clients()), (0, 0));
    }
}
