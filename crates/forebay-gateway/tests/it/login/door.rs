//! A server that logs clients in, and tells them which role they got.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay_gateway::config::Authentication;
use forebay_gateway::login::{
    Accepted, ClientLimits, LoggedIn, LoginError, LoginPolicy, LoginShared, Peer, TlsServer, login,
};
use forebay_gateway::users::{ScramVerifier, UserDefaults, Users};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::identity::Identity;

/// What a login came to.
#[derive(Debug)]
pub(super) enum Visit {
    Client { user: String, encrypted: bool, start: Vec<(String, String)> },
    Cancel([u8; 8]),
    Gone,
    Refused(LoginError),
}

pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) shared: Arc<LoginShared>,
    visits: UnboundedReceiver<Visit>,
}

/// The cancel key of every client.
pub(super) const KEY: &[u8; 8] = b"\0\0\0\x2a\x01\x02\x03\x04";

pub(super) fn policy(auth: Authentication, identity: Option<&Identity>) -> LoginPolicy {
    let verifier = |password: &str| ScramVerifier::derive(password, b"0123456789abcdef", 4_096).to_text();
    let text = format!(
        "[[user]]\nname = 'app'\nrole = 'writer'\npassword = '{}'\n\
         [[user]]\nname = 'odd'\nrole = 'odd'\npassword = '{}'\n\
         [[user]]\nname = 'cert'\nrole = 'by certificate'\ncertificate = 'cert'\n\
         [[user]]\nname = 'both'\nrole = 'both'\npassword = '{}'\ncertificate = 'both'\n\
         [[user]]\nname = 'far'\nrole = 'far'\npassword = '{}'\nallow = ['10.0.0.0/8']\n",
        verifier("secret"),
        verifier("\u{2168} pass\u{ad}word, with ümlauts="),
        verifier("secret"),
        verifier("secret"),
    );
    LoginPolicy {
        auth,
        users: Users::parse("users.toml", &text, &UserDefaults::default()).unwrap(),
        tls: identity.map(|identity| TlsServer::load(&identity.files()).unwrap()),
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

impl Door {
    pub(super) async fn open(policy: LoginPolicy) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(LoginShared::new(policy, rt::current().unwrap()));
        let (sender, visits) = unbounded_channel();
        let to = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((socket, peer)) = listener.accept().await {
                tokio::spawn(visit(socket, Peer::Tcp(peer), Arc::clone(&to), sender.clone()));
            }
        });
        Self { address, shared, visits }
    }

    /// The same on a Unix socket, whose port is 1.
    pub(super) async fn open_unix(policy: LoginPolicy, directory: &Path) -> Self {
        let listener = UnixListener::bind(directory.join(".s.PGSQL.1")).unwrap();
        let shared = Arc::new(LoginShared::new(policy, rt::current().unwrap()));
        let (sender, visits) = unbounded_channel();
        let to = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(visit(socket, Peer::Unix, Arc::clone(&to), sender.clone()));
            }
        });
        Self { address: SocketAddr::from(([127, 0, 0, 1], 1)), shared, visits }
    }

    /// The next connection.
    pub(super) async fn visit(&mut self) -> Visit {
        self.visits.recv().await.unwrap()
    }
}

async fn visit<S>(socket: S, peer: Peer, shared: Arc<LoginShared>, visits: UnboundedSender<Visit>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let visit = match login(socket, peer, &shared).await {
        Ok(Accepted::Client(client)) => {
            let start =
                client.start.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let (user, encrypted) = (client.user.name.clone(), client.stream.is_encrypted());
            drop(visits.send(Visit::Client { user, encrypted, start }));
            // The client may go away at any time.
            drop(serve(*client).await);
            return;
        }
        Ok(Accepted::Cancel(request)) => Visit::Cancel(request.key()),
        Ok(Accepted::Gone) => Visit::Gone,
        Err(error) => Visit::Refused(error),
    };
    drop(visits.send(visit));
}

fn message(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    out.extend(body);
}

/// Answers every query with the role.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(client: LoggedIn<S>) -> std::io::Result<()> {
    let LoggedIn { mut stream, user, unread: mut input, unsent: mut out, .. } = client;
    message(&mut out, b'S', b"server_version\x0016.0\0");
    message(&mut out, b'S', b"client_encoding\0UTF8\0");
    message(&mut out, b'K', KEY);
    message(&mut out, b'Z', b"I");
    loop {
        stream.write_all(&out).await?;
        stream.flush().await?;
        out.clear();
        while input.len() < 5 || input.len() < 1 + length(&input) {
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
        }
        let rest = input.split_off(1 + length(&input));
        if std::mem::replace(&mut input, rest)[0] != b'Q' {
            return Ok(());
        }
        message(&mut out, b'T', b"\0\x01role\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0");
        let role = user.role.as_bytes();
        let size = u32::try_from(role.len()).unwrap().to_be_bytes();
        message(&mut out, b'D', &[&[0, 1][..], &size, role].concat());
        message(&mut out, b'C', b"SELECT 1\0");
        message(&mut out, b'Z', b"I");
    }
}

fn length(input: &[u8]) -> usize {
    usize::try_from(u32::from_be_bytes(input[1..5].try_into().unwrap())).unwrap()
}
