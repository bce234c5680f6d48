//! Reads the values of settings.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::Authentication;
use crate::users::Mode;

/// A value that a setting can have.
pub(super) trait Value: Sized {
    /// What is allowed: the end of a sentence that begins with "must be".
    const ALLOWED: &'static str;

    fn read(text: &str) -> Option<Self>;
}

impl Value for String {
    const ALLOWED: &'static str = "text";

    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Value for bool {
    const ALLOWED: &'static str = "true or false";

    fn read(text: &str) -> Option<Self> {
        match text {
            "true" | "on" | "yes" | "1" => Some(true),
            "false" | "off" | "no" | "0" => Some(false),
            _ => None,
        }
    }
}

impl Value for Duration {
    const ALLOWED: &'static str = "a duration, such as 500ms, 10s or 2m";

    fn read(text: &str) -> Option<Self> {
        forebay::duration::parse(text)
    }
}

impl Value for SocketAddr {
    const ALLOWED: &'static str = "an address with a port, such as 127.0.0.1:6432 or [::1]:6432";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Value for Mode {
    const ALLOWED: &'static str = "session or elastic";

    fn read(text: &str) -> Option<Self> {
        Self::from_name(text)
    }
}

impl Value for Authentication {
    const ALLOWED: &'static str = "scram or trust";

    fn read(text: &str) -> Option<Self> {
        match text {
            "scram" => Some(Self::Scram),
            "trust" => Some(Self::Trust),
            _ => None,
        }
    }
}

/// A number above zero.
pub(super) struct Count(pub(super) usize);

impl Value for Count {
    const ALLOWED: &'static str = "a whole number from 1 to 4294967295";

    fn read(text: &str) -> Option<Self> {
        let count = text.parse::<u32>().ok().filter(|count| *count > 0)?;
        usize::try_from(count).ok().map(Self)
    }
}

/// A number of threads. Each costs memory and a few file descriptors, and those that have no processor of their own serve nobody faster.
pub(super) struct Threads(pub(super) usize);

impl Value for Threads {
    const ALLOWED: &'static str = "a whole number from 1 to 1024";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|threads| (1..=1_024).contains(threads)).map(Self)
    }
}

/// The number of a process.
pub(super) struct PeerId(pub(super) u8);

impl Value for PeerId {
    const ALLOWED: &'static str = "a number from 1 to 255";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|id| *id > 0).map(Self)
    }
}

/// A process, and where it can be reached.
pub(super) struct Peer {
    pub(super) id: u8,
    pub(super) address: String,
}

impl Value for Peer {
    const ALLOWED: &'static str = "a number from 1 to 255 with a host and a port, such as 2=10.0.0.7:6433";

    fn read(text: &str) -> Option<Self> {
        let (id, address) = text.split_once('=')?;
        let (host, port) = address.trim().rsplit_once(':')?;
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
                !host.is_empty() && host.chars().all(fits)
            }
        };
        let has_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        let PeerId(id) = PeerId::read(id.trim())?;
        (is_host && has_port).then(|| Self { id, address: address.trim().to_owned() })
    }
}

/// A number of bytes.
pub(super) struct Size(pub(super) usize);

impl Value for Size {
    const ALLOWED: &'static str = "a size from 1KiB to 1GiB, such as 16MiB";

    fn read(text: &str) -> Option<Self> {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let unit = match &text[end..] {
            "" | "B" => 1,
            "KiB" | "kB" => 1 << 10,
            "MiB" | "MB" => 1 << 20,
            "GiB" | "GB" => 1 << 30,
            _ => return None,
        };
        let size = text[..end].parse::<usize>().ok()?.checked_mul(unit)?;
        (1 << 10..=1 << 30).contains(&size).then_some(Self(size))
    }
}

/// The bits of a file mode.
pub(super) struct FileMode(pub(super) u32);

impl Value for FileMode {
    const ALLOWED: &'static str = "an octal file mode, such as 0770";

    fn read(text: &str) -> Option<Self> {
        u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_modes_are_read() {
        let size = |text| Size::read(text).map(|size| size.0);
        assert_eq!((size("1024"), size("4KiB"), size("1GB")), (Some(1024), Some(4096), Some(1 << 30)));
        assert_eq!(
            (size("1023"), size("2GiB"), size("x"), size("1.5MiB"), size("")),
            (None, None, None, None, None)
        );
        let mode = |text| FileMode::read(text).map(|mode| mode.0);
        assert_eq!((mode("0770"), mode("1000"), mode("8"), mode("-1")), (Some(0o770), None, None, None));
    }

    #[test]
    fn peers_are_read() {
        let peer = |text| Peer::read(text).map(|peer| (peer.id, peer.address));
        assert_eq!(peer("2=10.0.0.7:6433"), Some((2, "10.0.0.7:6433".to_owned())));
        assert_eq!(peer("255 = [::1]:1"), Some((255, "[::1]:1".to_owned())));
        assert_eq!(peer("7=gateway-7.internal:6433"), Some((7, "gateway-7.internal:6433".to_owned())));
        for wrong in [
            "",
            "2",
            "2=",
            "2=host",
            "2=:1",
            "0=a:1",
            "256=a:1",
            "x=a:1",
            "2=a:0",
            "2=a:65536",
            "2=::1:5",
            "2=a b:1",
            "2=[a]:1",
        ] {
            assert_eq!(peer(wrong), None, "{wrong}");
        }
    }
}
