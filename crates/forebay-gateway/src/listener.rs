//! Where clients connect.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4_096;

/// A client that is silent for this long is probed.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long the last packet of a client that connects may be under way.
const HANDSHAKE: Duration = Duration::from_millis(200);

/// A socket that listens, before a worker takes it.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(StdTcpListener),
    Unix(StdUnixListener, SocketFile),
}

/// Whether this process may listen on that port. With `shared`, others may do so, too. With `only_v6`, `[::]` is not for IPv4.
pub(crate) fn check_tcp(address: SocketAddr, only_v6: bool, shared: bool) -> io::Result<()> {
    let socket = bind(address, only_v6, shared)?;
    // Sockets that listen show only to those that listen.
    if shared { Ok(()) } else { socket.listen(1) }
}

/// Whether this process may have that Unix socket. With `shared`, it may take it from another.
pub(crate) fn check_unix(path: &Path, shared: bool) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) if !shared && somebody_listens(path) => Err(io::ErrorKind::AddrInUse.into()),
        _ => Ok(()),
    }
}

/// Whether a process has that Unix socket.
fn somebody_listens(path: &Path) -> bool {
    match knock(path) {
        Ok(()) => true,
        // With a full backlog, a client would have to wait.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Connects to a Unix socket, and hangs up. Its process is not waited for: it may be stuck.
fn knock(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

impl Bound {
    /// Listens on a TCP port, with a socket for each of so many workers: the system gives each client to one of them. With `shared`,
    /// other processes may listen there, too. With `only_v6`, `[::]` is not for IPv4.
    pub(crate) fn tcp(
        address: SocketAddr,
        only_v6: bool,
        workers: usize,
        shared: bool,
    ) -> io::Result<Vec<Self>> {
        let mut bound = Vec::new();
        // Sockets that share a port do not notice that somebody else has it. One that shares nothing does.
        let address = if shared { address } else { listen(address, only_v6, false)?.local_addr()? };
        for _ in 0..workers {
            // The first one may have been given a port by the system.
            let address = bound.first().map_or(Ok(address), StdTcpListener::local_addr)?;
            bound.push(listen(address, only_v6, true)?);
        }
        Ok(bound.into_iter().map(Self::Tcp).collect())
    }

    /// Listens on a Unix socket, which those may use that `mode` lets. With `shared`, it takes the place of another process's socket.
    ///
    /// It is made in a directory that nobody else can enter, called something with `unique`. So it has its mode before others see it.
    pub(crate) fn unix(path: &Path, mode: u32, shared: bool, unique: u64) -> io::Result<Self> {
        check_unix(path, shared)?;
        let private = PrivateDirectory::new(path, unique)?;
        let made = private.0.join("s");
        let listener = StdUnixListener::bind(&made)?;
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(mode))?;
        listener.set_nonblocking(true)?;
        if shared {
            std::fs::rename(&made, path)?;
        } else {
            remove_stale(path)?;
            // Unlike a renamed file, a link replaces nothing.
            std::fs::hard_link(&made, path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => io::ErrorKind::AddrInUse.into(),
                _ => error,
            })?;
        }
        let file = SocketFile::new(path)?;
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
                Listener::Unix { listener: UnixListener::from_std(listener)?, file: Some(file) }
            }
        })
    }
}

fn bind(address: SocketAddr, only_v6: bool, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Other addresses of IPv6 may stand for one of IPv4.
    if address.is_ipv6() && address.ip().is_unspecified() {
        // Said either way, as what holds otherwise is a setting of the system.
        socket.set_only_v6(only_v6)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    // On Linux, clients' sockets inherit what is set here.
    prepare(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(address: SocketAddr, only_v6: bool, shared: bool) -> io::Result<StdTcpListener> {
    let socket = bind(address, only_v6, shared)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket of a process that is gone.
fn remove_stale(path: &Path) -> io::Result<()> {
    match knock(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

/// A directory that only this user can enter, until it is dropped.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// One beside `path`.
    fn new(path: &Path, unique: u64) -> io::Result<Self> {
        // Half of it: the path of a socket must be short.
        let directory = path.with_file_name(format!(".fgw-{:08x}", unique >> 32));
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // What cannot be removed is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, file: Option<SocketFile> },
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

/// The file of a Unix socket. It is removed with the listener, unless another process has put its own in its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Its device, and its number there.
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// The next client. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                prepare_client(&socket2::SockRef::from(&socket))?;
                Ok(Accepted::Tcp(socket, peer))
            }
            Self::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }

    /// Lets nobody connect any more, so that new clients find the process that listens there next. Returns how long clients that have
    /// begun to connect may take: accept them, and call [`rest`](Self::rest) then.
    pub(crate) fn close_door(&mut self) -> Duration {
        match self {
            Self::Tcp(listener) => {
                // A client whose first packet is dropped sends it again after a second, to whoever listens then.
                let filtered = drop_first_packets(listener);
                let here =
                    listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
                if here || filtered.is_err() { Duration::ZERO } else { HANDSHAKE }
            }
            Self::Unix { file, .. } => {
                *file = None;
                Duration::ZERO
            }
        }
    }

    /// Closes it. Returns the clients that were not accepted yet.
    pub(crate) fn rest(self) -> io::Result<Vec<Accepted>> {
        let mut rest = Vec::new();
        // The runtime may not have heard of all of them, so the system is asked.
        match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                while let Ok((socket, peer)) = listener.accept() {
                    socket.set_nonblocking(true)?;
                    prepare_client(&socket2::SockRef::from(&socket))?;
                    rest.push(Accepted::Left(Unregistered::Tcp(socket, peer)));
                }
            }
            Self::Unix { listener, .. } => {
                let listener = listener.into_std()?;
                while let Ok((socket, _)) = listener.accept() {
                    socket.set_nonblocking(true)?;
                    rest.push(Accepted::Left(Unregistered::Unix(socket)));
                }
            }
        }
        Ok(rest)
    }
}

/// The same for a client's socket, where it has not inherited it.
fn prepare_client(socket: &Socket) -> io::Result<()> {
    if cfg!(target_os = "linux") { Ok(()) } else { prepare(socket) }
}

fn prepare(socket: &Socket) -> io::Result<()> {
    // A request is one write, and should not wait for another.
    socket.set_tcp_nodelay(true)?;
    // A client that vanished gives its backend back in the end.
    socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(KEEPALIVE))
}

/// Drops the packets with which clients begin to connect. Those of a client that has begun pass.
#[cfg(target_os = "linux")]
fn drop_first_packets(listener: &TcpListener) -> io::Result<()> {
    use socket2::SockFilter;
    /// Loads the byte at this place of the TCP header.
    const LOAD: u16 = 0x30;
    /// Jumps by whether one of these bits is set.
    const JUMP_IF_SET: u16 = 0x45;
    /// Takes so many bytes of the packet.
    const RETURN: u16 = 0x06;
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 2;
    socket2::SockRef::from(listener).attach_filter(&[
        SockFilter::new(LOAD, 0, 0, FLAGS_AT),
        SockFilter::new(JUMP_IF_SET, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
}

/// Other systems have no such filter: those that connect in the last microseconds are refused.
#[cfg(not(target_os = "linux"))]
fn drop_first_packets(_listener: &TcpListener) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Another user could connect in between.
    #[test]
    fn a_unix_socket_never_has_another_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".s.PGSQL.1");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| {
                let mut others = 0;
                while !done.load(Ordering::Relaxed) {
                    others += usize::from(
                        std::fs::metadata(&path).is_ok_and(|found| found.mode() & 0o777 != 0o700),
                    );
                }
                others
            });
            for unique in 0..300 {
                drop(Bound::unix(&path, 0o700, unique % 2 == 0, unique << 32).unwrap());
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(seen.join().unwrap(), 0);
        });
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_second_process_is_refused_or_takes_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".s.PGSQL.1");
        let first = Bound::unix(&path, 0o700, false, 1 << 32).unwrap();
        let refused = |result: io::Result<Bound>| result.unwrap_err().kind();
        assert_eq!(refused(Bound::unix(&path, 0o700, false, 2 << 32)), io::ErrorKind::AddrInUse);
        let second = Bound::unix(&path, 0o770, true, 3 << 32).unwrap();
        drop(first);
        assert_eq!(mode(&path), 0o770, "the socket of the second one is still there");
        StdUnixStream::connect(&path).unwrap();
        // As a process leaves it that is killed.
        let Bound::Unix(listener, file) = second else { panic!("a Unix socket") };
        drop(listener);
        std::mem::forget(file);
        let third = Bound::unix(&path, 0o700, false, 4 << 32).unwrap();
        StdUnixStream::connect(&path).unwrap();
        drop(third);
        std::fs::write(&path, "mine").unwrap();
        for shared in [false, true] {
            assert_eq!(refused(Bound::unix(&path, 0o700, shared, 5 << 32)), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    /// A start must not hang for its sake.
    #[test]
    fn a_process_that_is_stuck_still_has_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".s.PGSQL.1");
        let stuck = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        stuck.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        stuck.listen(0).unwrap();
        let _waiting = StdUnixStream::connect(&path).unwrap();
        assert_eq!(knock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock, "its backlog is full");
        assert_eq!(check_unix(&path, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let refused = Bound::unix(&path, 0o700, false, 1 << 32).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        check_unix(&path, true).unwrap();
    }

    /// `[::]` is for both families, unless IPv4 has a socket of its own.
    #[test]
    fn each_family_may_have_a_socket_of_its_own() {
        let any = |port: u16| SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port));
        // A machine may have no IPv6.
        let Ok(both) = Bound::tcp(any(0), false, 1, false) else { return };
        let port = both[0].address().unwrap().port();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let v4 = SocketAddr::from(([0, 0, 0, 0], port));
        assert_eq!(check_tcp(v4, false, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(both);
        let _v6 = Bound::tcp(any(port), true, 1, false).unwrap();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        std::net::TcpStream::connect(("::1", port)).unwrap();
        check_tcp(v4, false, false).unwrap();
        let _v4 = Bound::tcp(v4, false, 1, false).unwrap();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn a_port_is_shared_only_with_those_who_ask() {
        let first = Bound::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), false, 2, false).unwrap();
        let address = first[0].address().unwrap();
        assert_eq!(first[1].address(), Some(address));
        for refused in [check_tcp(address, false, false), Bound::tcp(address, false, 1, false).map(drop)] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        check_tcp(address, false, true).unwrap();
        let second = Bound::tcp(address, false, 3, true).unwrap();
        drop(first);
        assert_eq!(Bound::tcp(address, false, 1, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(second);
        Bound::tcp(address, false, 1, false).unwrap();
        let anywhere = Bound::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), false, 2, true).unwrap();
        assert_eq!(anywhere[0].address(), anywhere[1].address());
    }

    /// A client that connects while the door closes is not refused. It tries again after a second, and finds whoever listens then.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn who_comes_to_a_closed_door_finds_the_successor() {
        let shared = |address| Bound::tcp(address, false, 1, true).unwrap().remove(0).listen().unwrap();
        let mut first = shared(SocketAddr::from(([127, 0, 0, 1], 0)));
        let Listener::Tcp(listener) = &first else { panic!("a TCP listener") };
        let address = listener.local_addr().unwrap();
        let early = TcpStream::connect(address).await.unwrap();
        assert_eq!(first.close_door(), Duration::ZERO, "nothing is under way on this machine");
        let mut late = std::pin::pin!(TcpStream::connect(address));
        let time = forebay::rt::current().unwrap();
        // Refused or let in, it would end at once.
        let ended = forebay::rt::within(&*time, Duration::from_millis(100), late.as_mut()).await;
        assert!(ended.is_none(), "{ended:?}");
        let second = shared(address);
        let rest = first.rest().unwrap();
        let [Accepted::Left(Unregistered::Tcp(_, peer))] = &rest[..] else { panic!("{rest:?}") };
        assert_eq!(*peer, early.local_addr().unwrap());
        let (late, accepted) = futures_util::future::join(late, second.accept()).await;
        let Accepted::Tcp(_, peer) = accepted.unwrap() else { panic!("a TCP client") };
        assert_eq!(peer, late.unwrap().local_addr().unwrap());
    }
}
