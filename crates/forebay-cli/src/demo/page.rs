//! The live page about the reservoirs, on loopback.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use forebay::rt::TokioRuntime;
use forebay_dsql::Dsql;
use forebay_status::{Listen, Server, StatusPage};

/// Where it is, if the port is free. Otherwise it is at any free port.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

/// The page. It is served until this is dropped.
#[derive(Debug)]
pub(super) struct Page {
    page: StatusPage,
    server: Server,
}

impl Page {
    /// Serves the page: at `listen` or not at all, or else where there is room for it. Call it before anything registers
    /// metrics.
    pub(super) async fn serve(listen: Option<SocketAddr>, runtime: TokioRuntime) -> anyhow::Result<Self> {
        let mut page = StatusPage::new().runtime(runtime);
        // Without an exporter the page has everything but `/metrics`.
        if let Ok(render) = forebay_status::prometheus() {
            page = page.metrics(render);
        }
        let server = match (listen, page.serve(Listen::new(listen.unwrap_or(USUAL))).await) {
            (None, Err(_)) => page.serve(Listen::new(SocketAddr::new(USUAL.ip(), 0))).await,
            (_, served) => served,
        };
        Ok(Self { page, server: server.context("cannot serve the live page")? })
    }

    pub(super) fn url(&self) -> String {
        self.server.to_string()
    }

    /// Shows the pool of an instance, or that of its successor.
    pub(super) fn show(&self, name: &str, dsql: &Dsql) {
        self.page.pool(name, dsql.status_source());
    }

    /// Tells those who look what happens.
    pub(super) fn note(&self, text: &str) {
        self.page.note(text);
    }
}

/// An address for the page. It has no token, so it is for this machine only.
pub(super) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let listen: Listen = text.parse().map_err(|error: forebay_status::InvalidListen| error.to_string())?;
    if listen.is_loopback() {
        return Ok(listen.address());
    }
    Err("the demo's page has no token, so it is for this machine only: give 127.0.0.1 and a port".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_sees_the_page() {
        assert_eq!(loopback("127.0.0.1:0").unwrap().port(), 0);
        assert_eq!(loopback("8080").unwrap(), "127.0.0.1:8080".parse().unwrap());
        assert!(loopback("0.0.0.0:80").unwrap_err().contains("127.0.0.1"));
        assert!(loopback("nowhere").unwrap_err().contains("not an address"));
    }
}
