//! Opens the live page in the user's browser.

use std::process::{Command, Stdio};

/// Opens `url` where there is a desktop. If that fails, the user still has the address.
pub(super) fn open(url: &str) {
    let Some((program, arguments)) =
        opener(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    else {
        return;
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Nobody waits for it: it ends when it likes.
    drop(command.spawn());
}

/// The program that opens addresses, and its first arguments. None without a desktop.
fn opener(is_set: impl Fn(&str) -> bool) -> Option<(&'static str, &'static [&'static str])> {
    // Over SSH, the desktop is somewhere else.
    if is_set("SSH_CONNECTION") {
        None
    } else if cfg!(target_os = "macos") {
        Some(("open", &[]))
    } else if cfg!(windows) {
        Some(("rundll32", &["url.dll,FileProtocolHandler"]))
    } else {
        (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")).then_some(("xdg-open", &[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn it_takes_a_desktop_on_this_machine() {
        let with = |set: &'static [&str]| opener(|name| set.contains(&name)).is_some();
        assert!(with(&["DISPLAY"]) && with(&["WAYLAND_DISPLAY"]));
        assert!(!with(&[]) && !with(&["DISPLAY", "SSH_CONNECTION"]));
    }
}
