//! Opens a page in a real browser and reports what it shows.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// The headless shell: plain Chromium cannot be narrower than 500 pixels, and calls its vendor.
const PROGRAM: &str = "chromium-headless-shell";

/// Runs before anything of the page is read.
const LISTEN: &str = "<script>window.errors=[];\
    for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation'])\
      addEventListener(kind, (event) => errors.push(`${kind}: ${event.message || event.reason || event.blockedURI}`), true);\
    for (const kind of ['error', 'warn']) console[kind] = (...words) => errors.push(`${kind}: ${words.join(' ')}`);\
    </script>";

/// The preferred colour scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) scheme: Scheme,
    pub(crate) width: u64,
    /// The result of `check.js`.
    pub(crate) report: Value,
    /// The lines on the browser's console.
    pub(crate) console: Vec<String>,
    /// Requested addresses, without the page's own.
    pub(crate) requests: Vec<String>,
}

impl Seen {
    /// The visible text.
    pub(crate) fn text(&self) -> &str {
        self.report["text"].as_str().unwrap_or_default()
    }
}

pub(crate) struct Browser {
    folder: PathBuf,
}

impl Browser {
    /// Works in its own folder, and leaves the pages there for inspection.
    pub(crate) fn new(folder: &str) -> Self {
        let version = Command::new(PROGRAM).arg("--version").output();
        assert!(
            version.is_ok_and(|output| output.status.success()),
            "no browser; ./test installs it, or: apt-get install -y {PROGRAM}"
        );
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("html_report").join(folder);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Self { folder }
    }

    pub(crate) fn look(&self, html: &str, scheme: Scheme, width: u64) -> Seen {
        let check = format!("<script>{}</script></body>", include_str!("check.js"));
        let page = html.replacen("<head>", &format!("<head>{LISTEN}"), 1);
        let (before, after) = page.rsplit_once("</body>").expect("a body");
        let name = format!("{scheme:?}-{width}").to_lowercase();
        let file = self.folder.join(format!("{name}.html"));
        fs::write(&file, format!("{before}{check}{after}")).expect("written");

        let log = self.folder.join(format!("{name}.json"));
        let home = self.folder.join("home");
        let address = format!("file://{}", file.display());
        let output = Self::run(&[
            "--dump-dom",
            "--enable-logging=stderr",
            &format!("--user-data-dir={}", home.display()),
            &format!("--log-net-log={}", log.display()),
            &format!("--window-size={width},900"),
            // The browser's own numbers of the schemes.
            &format!("--blink-settings=preferredColorScheme={}", if scheme == Scheme::Dark { 0 } else { 1 }),
            &address,
        ]);
        let _ = fs::remove_dir_all(&home);
        let log = fs::read_to_string(&log).expect("a log of requests");
        let (dom, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let report = dom.split_once("<pre id=\"report\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let report = report.unwrap_or_else(|| panic!("no report from {address}:\n{notes}")).0;
        Seen {
            scheme,
            width,
            report: serde_json::from_str(report).expect("JSON"),
            console: notes.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
            requests: requests(&log).into_iter().filter(|url| *url != address).collect(),
        }
    }

    fn run(arguments: &[&str]) -> Output {
        let output = Command::new(PROGRAM)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-extensions", "--disable-default-apps", "--hide-scrollbars"])
            .args(["--timeout=30000", "--virtual-time-budget=1000"])
            .args(arguments)
            .output()
            .expect("a browser that starts");
        assert!(output.status.success(), "{PROGRAM}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

/// Every address in a browser's log of requests, without data in the page itself.
fn requests(log: &str) -> Vec<String> {
    let mut urls: Vec<String> = log
        .split("\"url\":\"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'))
        .map(|(url, _)| url.to_owned())
        .filter(|url| !url.starts_with("data:"))
        .collect();
    urls.sort();
    urls.dedup();
    urls
}
