//! Drives a browser over the DevTools protocol: JSON messages, each ended by a NUL, through two pipes.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// The headless shell: plain Chromium cannot be narrower than 500 pixels, and calls its vendor.
const PROGRAM: &str = "chromium-headless-shell";

/// How long one answer may take. Machines that build at the same time are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one tab. It ends when this is dropped.
pub(crate) struct Browser {
    child: Child,
    commands: RefCell<File>,
    messages: Receiver<Value>,
    next: Cell<u64>,
    session: String,
    /// What the browser reported beside answers.
    events: RefCell<Vec<Value>>,
    folder: PathBuf,
}

impl Browser {
    /// Starts it. Its files are in `folder`, which is emptied.
    pub(crate) fn start(folder: &Path) -> Self {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).expect("a folder");
        let [commands, messages] = ["commands", "messages"].map(|name| folder.join(name));
        let made = Command::new("mkfifo").args([&commands, &messages]).status().expect("mkfifo");
        assert!(made.success(), "no pipes");
        // The browser expects the pipes as descriptors 3 and 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$COMMANDS\" 4>\"$MESSAGES\"", PROGRAM])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-extensions", "--disable-default-apps", "--hide-scrollbars"])
            .args(["--remote-debugging-pipe", "--force-color-profile=srgb", "--font-render-hinting=none"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .env("COMMANDS", &commands)
            .env("MESSAGES", &messages)
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("log")).expect("a log"))
            .spawn()
            .expect("a shell");
        let mut browser = Self {
            child,
            commands: RefCell::new(Self::open(&commands, OpenOptions::new().write(true))),
            messages: Self::listen(Self::open(&messages, OpenOptions::new().read(true))),
            next: Cell::new(1),
            session: String::new(),
            events: RefCell::default(),
            folder: folder.to_owned(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", target);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        // Nobody looks at a headless page, so without this it has no focus.
        browser.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
        browser
    }

    fn open(path: &Path, options: &OpenOptions) -> File {
        options.open(path).expect("a pipe")
    }

    /// Reads messages in the background, so that a wait for one can end.
    fn listen(pipe: File) -> Receiver<Value> {
        let (sender, receiver) = channel();
        #[allow(clippy::disallowed_methods, reason = "a blocking read needs a thread")]
        std::thread::spawn(move || {
            for message in BufReader::new(pipe).split(0) {
                let parsed = message.ok().and_then(|message| serde_json::from_slice(&message).ok());
                if parsed.is_none_or(|message| sender.send(message).is_err()) {
                    return;
                }
            }
        });
        receiver
    }

    /// Calls a method and returns its result.
    pub(crate) fn call(&self, method: &str, parameters: Value) -> Value {
        let id = self.next.replace(self.next.get() + 1);
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.as_str().into();
        }
        self.commands
            .borrow_mut()
            .write_all(format!("{command}\0").as_bytes())
            .expect("a browser that listens");
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                panic!("{method}: {error}; is {PROGRAM} installed? ./test installs it\n{log}")
            });
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.borrow_mut().push(message);
        }
    }

    /// The value of a JavaScript expression, or of its promise.
    pub(crate) fn evaluate(&self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true. Returns how many milliseconds that took in the page.
    pub(crate) fn wait_for(&self, condition: &str) -> f64 {
        let waited = self.evaluate(&format!(
            "new Promise((resolve) => {{
                const began = performance.now();
                const look = () => {{
                    const waited = performance.now() - began;
                    if ({condition}) resolve(waited);
                    else if (waited > 30000) resolve(-1);
                    else setTimeout(look, 10);
                }};
                look();
            }})"
        ));
        let waited = waited.as_f64().unwrap_or(-1.0);
        assert!(waited >= 0.0, "not seen: {condition}\non the page: {}", self.text("body"));
        waited
    }

    /// The visible text of an element.
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.evaluate(&format!("document.querySelector({selector:?}).innerText"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) fn open_page(&self, address: &str) {
        self.events.borrow_mut().retain(|event| event["method"] != "Page.loadEventFired");
        self.call("Page.navigate", json!({"url": address}));
        while !self.events.borrow().iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.messages.recv_timeout(PATIENCE).expect("a page that loads");
            self.events.borrow_mut().push(event);
        }
    }

    /// Sets the size of the window and the preferred colours.
    pub(crate) fn dress(&self, width: u64, height: u64, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
        // Two frames: one to resize, one to draw what observes the size.
        self.evaluate(
            "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))",
        );
    }

    /// A PNG of the first `height` pixels of the page, or of all of it.
    pub(crate) fn screenshot(&self, height: Option<u64>) -> Vec<u8> {
        let metrics = self.call("Page.getLayoutMetrics", json!({}));
        let size = &metrics["cssContentSize"];
        let height = height.map_or(size["height"].clone(), Value::from);
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1});
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let shot = self.call("Page.captureScreenshot", parameters);
        let data = shot["data"].as_str().expect("a picture");
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).expect("base64")
    }

    /// Presses a key.
    pub(crate) fn press(&self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowLeft" => 37,
            _ => 0,
        };
        let text = if key == "Enter" { "\r" } else { "" };
        // A key without a text is a raw one.
        for kind in [if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "keyUp"] {
            let event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Everything on the console that is not fine: errors, warnings, exceptions, refused requests.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.evaluate("0");
        let events = self.events.borrow();
        let bad = |level: &Value| matches!(level.as_str(), Some("error" | "warning" | "assert"));
        let complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => bad(&event["params"]["type"]),
            Some("Log.entryAdded") => bad(&event["params"]["entry"]["level"]),
            _ => false,
        };
        events.iter().filter(complaint).map(|event| event["params"].to_string()).collect()
    }

    /// Every address that was requested.
    pub(crate) fn requests(&self) -> Vec<String> {
        let events = self.events.borrow();
        let requests = events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.filter_map(|event| Some(event["params"]["request"]["url"].as_str()?.to_owned())).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(self.folder.join("profile"));
    }
}
