//! Notices when the server closes a connection that nobody reads, and closes one whose lease is recalled.
//!
//! An idle connection has no driver that reads its socket. One task looks at all of them, ten times a second, with one system call.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::ConnectionMonitor;
use forebay::rt::Runtime;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::net::TcpStream;

/// What tells that the peer has closed its side. Linux tells so only who asks for it by this name; other systems tell it as a
/// hang-up, which poll reports in any case.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOSED: PollFlags = PollFlags::RDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOSED: PollFlags = PollFlags::HUP;

/// How often the sockets are looked at.
const INTERVAL: Duration = Duration::from_millis(100);

/// Watches the sockets of a connector.
#[derive(Default)]
pub(super) struct Watch(Arc<Mutex<Sockets>>);

#[derive(Default)]
struct Sockets {
    watched: Vec<Arc<Socket>>,
    /// The task runs.
    looking: bool,
}

struct Socket {
    /// A second handle to it.
    socket: OwnedFd,
    monitor: ConnectionMonitor,
}

impl Watch {
    /// Watches `socket` until the returned guard is dropped.
    pub(super) fn add(
        &self,
        socket: &TcpStream,
        monitor: ConnectionMonitor,
        runtime: &Arc<dyn Runtime>,
    ) -> io::Result<Watched> {
        let socket = Arc::new(Socket { socket: socket.as_fd().try_clone_to_owned()?, monitor });
        let mut sockets = self.0.lock();
        sockets.watched.push(Arc::clone(&socket));
        if !std::mem::replace(&mut sockets.looking, true) {
            runtime.spawn(Box::pin(look(Arc::downgrade(&self.0), Arc::clone(runtime))));
        }
        Ok(Watched { socket, sockets: Arc::downgrade(&self.0) })
    }
}

/// A socket that is watched. Dropping it ends that.
pub(super) struct Watched {
    socket: Arc<Socket>,
    sockets: Weak<Mutex<Sockets>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(sockets) = self.sockets.upgrade() {
            sockets.lock().watched.retain(|watched| !Arc::ptr_eq(watched, &self.socket));
        }
    }
}

/// Looks at the sockets until there are none, or nobody owns them any more.
async fn look(sockets: Weak<Mutex<Sockets>>, runtime: Arc<dyn Runtime>) {
    loop {
        runtime.sleep_until(runtime.now() + INTERVAL).await;
        let Some(sockets) = sockets.upgrade() else { return };
        let watched = {
            let mut sockets = sockets.lock();
            if sockets.watched.is_empty() {
                sockets.looking = false;
                return;
            }
            sockets.watched.clone()
        };
        // Neither needs the lock: reporting a death may drop the connection, which takes it.
        for socket in closed(&watched) {
            socket.monitor.mark_dead();
        }
        for socket in watched.iter().filter(|socket| socket.monitor.is_recalled()) {
            // Whoever uses it reads the end of the stream. An error means that it is closed already.
            let _ = rustix::net::shutdown(&socket.socket, rustix::net::Shutdown::Both);
        }
    }
}

/// Those that the server has closed.
fn closed(watched: &[Arc<Socket>]) -> Vec<&Arc<Socket>> {
    let mut polled: Vec<PollFd<'_>> =
        watched.iter().map(|socket| PollFd::new(&socket.socket, CLOSED)).collect();
    // Without a wait. If it fails, the next look may not.
    match rustix::event::poll(&mut polled, Some(&Timespec::default())) {
        Ok(1..) => {}
        _ => return Vec::new(),
    }
    let ended = CLOSED | PollFlags::HUP | PollFlags::ERR;
    let pairs = watched.iter().zip(polled);
    pairs.filter(|(_, polled)| polled.revents().intersects(ended)).map(|(socket, _)| socket).collect()
}
