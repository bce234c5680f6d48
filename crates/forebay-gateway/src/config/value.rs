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
    const ALLOWED: &'static str = "a number above zero";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|count| *count > 0).map(Self)
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
}
