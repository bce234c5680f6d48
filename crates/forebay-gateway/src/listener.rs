//! Where clients connect.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4_096;

/// A client that is silent for this long is probed.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A socket that listens, before a worker takes it.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(StdTcpListener),
    Unix(StdUnixListener, SocketFile),
}

impl Bound {
    /// Listens on a TCP port, with a socket for each of so many workers: the system gives each client to one of them.
    pub(crate) fn tcp(address: SocketAddr, workers: usize) -> io::Result<Vec<Self>> {
        // Sockets that share a port do not notice that somebody else has it. One that shares nothing does.
        let address = listen(address, false)?.local_addr()?;
        (0..workers).map(|_| Ok(Self::Tcp(listen(address, true)?))).collect()
    }

    /// Listens on a Unix socket, which those may use that `mode` lets.
    pub(crate) fn unix(path: &Path, mode: u32) -> io::Result<Self> {
        match StdUnixStream::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            // Left over from a process that is gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            Err(_) => {}
        }
        let listener = StdUnixListener::bind(path)?;
        let file = SocketFile(path.to_owned());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, file))
    }

    /// The port of a TCP listener.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Registers it with the runtime of the caller.
    pub(crate) fn listen(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Self::Unix(listener, file) => {
                Listener::Unix { listener: UnixListener::from_std(listener)?, _file: file }
            }
        })
    }
}

fn listen(address: SocketAddr, shared: bool) -> io::Result<StdTcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    // On Linux, clients' sockets inherit them.
    set_options(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// What a client's socket needs.
fn set_options(socket: &Socket) -> io::Result<()> {
    // A request is one write, and should not wait for another.
    socket.set_tcp_nodelay(true)?;
    // A client that vanished gives its backend back in the end.
    socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(KEEPALIVE))
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, _file: SocketFile },
}

/// A client's socket.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
    /// It is registered with no runtime.
    Left(Unregistered),
}

/// A client's socket on its way from one runtime to another.
#[derive(Debug)]
pub(crate) enum Unregistered {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(StdUnixStream),
}

impl Accepted {
    /// Leaves the runtime that it is registered with.
    pub(crate) fn leave(self) -> io::Result<Unregistered> {
        Ok(match self {
            Self::Tcp(socket, peer) => Unregistered::Tcp(socket.into_std()?, peer),
            Self::Unix(socket) => Unregistered::Unix(socket.into_std()?),
            Self::Left(socket) => socket,
        })
    }

    /// Registers it with the runtime of the caller, if it is registered with none.
    pub(crate) fn arrive(self) -> io::Result<Self> {
        Ok(match self {
            Self::Left(Unregistered::Tcp(socket, peer)) => Self::Tcp(TcpStream::from_std(socket)?, peer),
            Self::Left(Unregistered::Unix(socket)) => Self::Unix(UnixStream::from_std(socket)?),
            here => here,
        })
    }
}

/// The file of a Unix socket. It is removed with the listener.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// The next client. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                // On Linux each has inherited them.
                #[cfg(not(target_os = "linux"))]
                set_options(&socket2::SockRef::from(&socket))?;
                Ok(Accepted::Tcp(socket, peer))
            }
            Self::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}
