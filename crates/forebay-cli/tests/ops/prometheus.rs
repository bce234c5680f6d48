//! A real Prometheus with the rules of `ops/prometheus`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::process::{Process, directory, free_address, repository, until};

pub(crate) struct Prometheus {
    pub(crate) address: SocketAddr,
    _process: Process,
}

/// Where `prometheus` and `promtool` are.
pub(crate) fn programs() -> &'static PathBuf {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        // CARGO_TARGET_TMPDIR is a directory of the target directory.
        let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("..");
        let script = repository().join("ops/check/prometheus");
        let output = Command::new(script).arg(target).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

impl Prometheus {
    /// Starts one that scrapes these status pages several times a second.
    pub(crate) fn start(pages: &[SocketAddr]) -> Self {
        let (data, address) = (directory("prometheus"), free_address());
        let rules = repository().join("ops/prometheus").canonicalize().unwrap();
        let mut config =
            "global: { scrape_interval: 400ms, scrape_timeout: 400ms, evaluation_interval: 400ms }\n"
                .to_owned();
        writeln!(config, "rule_files: [{0}/recording.yml, {0}/alerts.yml]", rules.display()).unwrap();
        let pages: Vec<String> = pages.iter().map(|page| format!("\"{page}\"")).collect();
        writeln!(
            config,
            "scrape_configs: [{{ job_name: dsql, static_configs: [{{ targets: [{}] }}] }}]",
            pages.join(", ")
        )
        .unwrap();
        std::fs::write(data.join("prometheus.yml"), config).unwrap();
        let mut command = Command::new(programs().join("prometheus"));
        command
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(data.join("log")).unwrap());
        let process = Process::start(&mut command);
        let prometheus = Self { address, _process: process };
        until(|| prometheus.try_get("query", &[("query", "up")]));
        prometheus
    }

    /// What the API answers, under `data`.
    pub(crate) fn get(&self, what: &str, query: &[(&str, &str)]) -> Value {
        self.try_get(what, query).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_get(&self, what: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--get"]);
        for (name, value) in query {
            curl.arg("--data-urlencode").arg(format!("{name}={value}"));
        }
        let output = curl.arg(format!("http://{}/api/v1/{what}", self.address)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let mut answer: Value = serde_json::from_str(&said).map_err(|_| format!("Prometheus says {said}"))?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"].take()),
            _ => Err(format!("{query:?}: {answer}")),
        }
    }

    /// How many series an expression has now.
    pub(crate) fn series(&self, expression: &str) -> usize {
        self.get("query", &[("query", expression)])["result"].as_array().map_or(0, Vec::len)
    }

    /// Waits until the condition of this alert holds.
    pub(crate) fn expect_alert(&self, name: &str) {
        let expression = format!("ALERTS{{alertname=\"{name}\"}}");
        until(|| match self.series(&expression) {
            0 => Err(format!("{name} is not pending; there are {}", self.get("alerts", &[]))),
            _ => Ok(()),
        });
    }
}
