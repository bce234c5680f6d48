//! The start of a session: TLS is asked for, then the user shows its token.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::message::{backend, frontend};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ServerMessage, unexpected};
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::token::Token;

/// The settings that the server reported when the session began (`ParameterStatus`), in its order. Clones share them.
pub type Reported = Arc<[(Box<str>, Box<str>)]>;

/// Asks for TLS. Cancel safe: dropping the future closes the socket.
pub(super) async fn request_tls(socket: &mut TcpStream) -> Result<(), Error> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    socket.write_all(&request).await?;
    match socket.read_u8().await? {
        b'S' => Ok(()),
        _ => Err(Error::new(ErrorKind::Permanent, "the server has no TLS")),
    }
}

/// Starts a session. Cancel safe: dropping the future closes the socket.
pub(super) async fn start<S>(stream: &mut S, options: &Options, token: &Token) -> Result<Reported, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = BytesMut::new();
    let parameters = [
        ("client_encoding", "UTF8"),
        ("user", options.user()),
        ("database", options.database()),
        ("application_name", options.application_name()),
    ];
    frontend::startup_message(parameters, &mut request)?;
    stream.write_all(&request).await?;
    stream.flush().await?;
    let (mut answers, mut reported) = (BytesMut::new(), Vec::new());
    loop {
        match next(stream, &mut answers).await? {
            backend::Message::AuthenticationCleartextPassword => {
                request.clear();
                frontend::password_message(token.expose_secret().as_bytes(), &mut request)?;
                stream.write_all(&request).await?;
                stream.flush().await?;
                request.fill(0);
            }
            backend::Message::ParameterStatus(status) => {
                let (name, value) = (status.name()?.into(), status.value()?.into());
                reported.push((name, value));
            }
            backend::Message::ErrorResponse(body) => return Err(Error::of(ServerMessage::read(&body)?)),
            backend::Message::AuthenticationOk
            | backend::Message::BackendKeyData(_)
            | backend::Message::NoticeResponse(_) => {}
            backend::Message::ReadyForQuery(_) if answers.is_empty() => return Ok(reported.into()),
            backend::Message::AuthenticationMd5Password(_) | backend::Message::AuthenticationSasl(_) => {
                let asks =
                    "the server asks for a password that is not sent in clear: Aurora DSQL asks for a token";
                return Err(Error::new(ErrorKind::Permanent, asks));
            }
            _ => return Err(unexpected("the server sent an unexpected message at the start of a session")),
        }
    }
}

async fn next<S: AsyncRead + Unpin>(
    stream: &mut S,
    answers: &mut BytesMut,
) -> Result<backend::Message, Error> {
    loop {
        if let Some(message) = backend::Message::parse(answers).map_err(unexpected)? {
            return Ok(message);
        }
        if stream.read_buf(answers).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}
