//! A server behind TLS that answers every simple query as a script tells it: with garbage, in pieces, or not at all.

use std::io;
use std::sync::Arc;

use forebay_dsql::{
    Options, OptionsBuilder, RootCertificates, SignFuture, Signed, Signer, Token, TokenRequest,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What the server does next.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Past TLS, onto the socket.
    Garble(Vec<u8>),
    /// Ends the connection.
    Close,
}

/// A server that follows a script. It ends with the test's runtime.
pub(crate) struct Fake {
    port: u16,
    roots: RootCertificates,
}

impl Fake {
    /// Starts one. `script` gets the text of each query.
    pub(crate) async fn start(script: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::that_greets(Vec::new(), script).await
    }

    /// One that says `more` in one breath with its welcome.
    pub(crate) async fn that_greets(
        more: Vec<u8>,
        script: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let (acceptor, pem) = certified();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (script, more) = (Arc::new(script), Arc::new(more));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, script, more) = (acceptor.clone(), Arc::clone(&script), Arc::clone(&more));
                // Whoever hangs up first, it is over.
                tokio::spawn(async move { drop(serve(socket, acceptor, &more, &*script).await) });
            }
        });
        Self { port, roots: RootCertificates::Pem(pem.into_bytes().into()) }
    }

    /// Options for a pool of so many connections.
    pub(crate) fn options(&self, connections: usize) -> OptionsBuilder {
        Options::builder("localhost")
            .port(self.port)
            .region("us-east-1")
            .roots(self.roots.clone())
            .variable("DSQL_MAX_CONNS", connections.to_string())
            .variable("DSQL_STAGGERED_STARTUP", "false")
            .variable("DSQL_CONNECTION_RATE_LIMIT", "1000")
    }
}

/// Signs for a server that believes everybody.
pub(crate) struct Anybody;

impl Signer for Anybody {
    fn sign<'a>(&'a self, _: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async { Ok(Signed { token: Token::new("anything"), credentials_expire: None }) })
    }
}

pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

pub(crate) fn error(severity: &str, code: &str, text: &str) -> Vec<u8> {
    let fields = [('S', severity), ('V', severity), ('C', code), ('M', text)];
    let fields: String = fields.iter().map(|(field, value)| format!("{field}{value}\0")).collect();
    message(b'E', format!("{fields}\0").as_bytes())
}

/// The tag of what is done, and the state after it.
pub(crate) fn done(tag: &str, state: &[u8]) -> Vec<u8> {
    [message(b'C', format!("{tag}\0").as_bytes()), message(b'Z', state)].concat()
}

/// What a server in order says: one that takes everything but a few words for a statement inside a transaction, and
/// repeats a text that is asked for.
pub(crate) fn in_order(text: &str) -> Vec<u8> {
    if let Some(word) = text.strip_prefix("SELECT '").and_then(|rest| rest.strip_suffix('\'')) {
        let length = u32::try_from(word.len()).unwrap().to_be_bytes();
        let column = [&b"word\0"[..], &[0; 6], &25_u32.to_be_bytes(), &[0xff; 6], &[0; 2]].concat();
        return [
            message(b'T', &[&[0, 1][..], &column].concat()),
            message(b'D', &[&[0, 1][..], &length, word.as_bytes()].concat()),
            done("SELECT 1", b"T"),
        ]
        .concat();
    }
    match text {
        "BEGIN" => done("BEGIN", b"T"),
        "COMMIT" => done("COMMIT", b"I"),
        "ROLLBACK" => done("ROLLBACK", b"I"),
        "RESET ALL" => done("RESET", b"I"),
        _ => done("INSERT 0 1", b"T"),
    }
}

/// A certificate for localhost, and who vouches for it.
fn certified() -> (TlsAcceptor, String) {
    let name = || CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = name();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = name().signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), pem)
}

async fn serve(
    mut socket: TcpStream,
    acceptor: TlsAcceptor,
    more: &[u8],
    script: &(dyn Fn(&str) -> Vec<Act> + Send + Sync),
) -> io::Result<()> {
    socket.read_exact(&mut [0; 8]).await?;
    socket.write_all(b"S").await?;
    let mut stream = acceptor.accept(socket).await?;
    read_body(&mut stream).await?;
    let hello = [
        message(b'R', &0_u32.to_be_bytes()),
        message(b'S', b"server_version\x0016.0\0"),
        message(b'K', &[0; 8]),
        message(b'Z', b"I"),
        more.to_vec(),
    ];
    stream.write_all(&hello.concat()).await?;
    stream.flush().await?;
    loop {
        let kind = stream.read_u8().await?;
        let body = read_body(&mut stream).await?;
        let text = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
        match kind {
            b'X' => return Ok(()),
            b'Q' => {}
            _ => continue,
        }
        for act in script(&text) {
            match act {
                Act::Send(bytes) => {
                    stream.write_all(&bytes).await?;
                    stream.flush().await?;
                }
                Act::Garble(bytes) => stream.get_mut().0.write_all(&bytes).await?,
                Act::Close => return Ok(()),
            }
        }
    }
}

async fn read_body(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await? as usize;
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
