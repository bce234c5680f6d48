//! Three pools with callers, in virtual time: five minutes of history take no time.

use std::net::SocketAddr;
use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::{Runtime, VirtualTime};
use forebay::{Config, Lifetime, Reservoir, WeakReservoir};
use forebay_status::{FleetSnapshot, PoolSnapshot, PoolSource, StatusPage, TokenSnapshot};

pub(crate) struct World {
    pub(crate) time: VirtualTime,
    pub(crate) server: Memory,
    pub(crate) page: StatusPage,
    pub(crate) orders: Reservoir<Memory>,
    _others: [Reservoir<Memory>; 2],
    host: Option<tokio::runtime::Runtime>,
    pub(crate) address: SocketAddr,
}

impl World {
    /// All pools are full, and the page is served on a free port.
    pub(crate) fn new() -> Self {
        let time = VirtualTime::new();
        let server = Memory::new(time.clone());
        server.open_time(Duration::from_millis(120));
        let life = Lifetime::new(Duration::from_secs(660))
            .jitter(Duration::from_secs(120))
            .guard_window(Duration::from_secs(45));
        let config = Config::default()
            .max_open(50)
            .low_watermark(40)
            .lifetime(life)
            .server_limit(Duration::from_secs(3_600))
            .rate(8.0, 10)
            .startup_jitter(Duration::ZERO);
        let start = |server: &Memory, config: Config| {
            let builder = Reservoir::builder(server.clone()).config(config).runtime(time.clone());
            time.run(builder.start()).expect("a reservoir")
        };
        let orders = start(&server, config.clone());
        let search = start(&Memory::new(time.clone()), config.clone().max_open(12).low_watermark(8));
        let reports = start(&Memory::new(time.clone()), config.max_open(20).on_demand(2));
        let page = StatusPage::new().runtime(time.clone());
        page.pool("orders", Dsql { reservoir: orders.downgrade(), time: time.clone() });
        page.reservoir("search", &search);
        page.reservoir("reports", &reports);
        for caller in 0..22 {
            callers(&time, &orders, caller);
        }
        callers(&time, &search, 3);
        callers(&time, &reports, 5);
        // The first request starts the sampler of a page; its history is to have begun before.
        drop(page.router());
        let mut world = Self {
            time,
            server,
            page,
            orders,
            _others: [search, reports],
            host: None,
            address: ([127, 0, 0, 1], 0).into(),
        };
        world.serve();
        world
    }

    /// Serves the page, at the same port as before.
    pub(crate) fn serve(&mut self) {
        let host = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let host = host.expect("a runtime");
        let app = self.page.router();
        let listener = host.block_on(tokio::net::TcpListener::bind(self.address)).expect("a port");
        self.address = listener.local_addr().expect("an address");
        host.spawn(async move { axum::serve(listener, app).await });
        self.host = Some(host);
    }

    /// Kills the server with all its connections.
    pub(crate) fn stop_serving(&mut self) {
        if let Some(host) = self.host.take() {
            host.shutdown_timeout(Duration::from_secs(10));
        }
    }

    pub(crate) fn pass(&self, seconds: f64) {
        self.time.advance(Duration::from_secs_f64(seconds));
    }
}

/// A caller that works and rests, for times that are its own.
fn callers(time: &VirtualTime, reservoir: &Reservoir<Memory>, number: u64) {
    let (runtime, reservoir) = (time.clone(), reservoir.clone().downgrade());
    time.spawn(Box::pin(async move {
        for turn in 0.. {
            let sleep =
                |milliseconds| runtime.sleep_until(runtime.now() + Duration::from_millis(milliseconds));
            sleep(400 + (number * 977 + turn * 613) % 3_900).await;
            let Some(reservoir) = reservoir.upgrade() else { return };
            let lent = reservoir.checkout().await;
            sleep(900 + (number * 389 + turn * 769) % 2_500).await;
            drop(lent);
        }
    }));
}

/// A reservoir with the leases and the token of a fleet.
struct Dsql {
    reservoir: WeakReservoir<Memory>,
    time: VirtualTime,
}

impl PoolSource for Dsql {
    fn snapshot(&self) -> Option<PoolSnapshot> {
        let reservoir = self.reservoir.upgrade()?;
        let mut snapshot = PoolSnapshot::of(&reservoir);
        let leases = snapshot.status.owned() as u64;
        let age = Duration::from_secs(self.time.now().since(forebay::Instant::ZERO).as_secs() % 600);
        snapshot.mode = Some("reservoir".into());
        snapshot.fleet = Some(FleetSnapshot {
            instance: "orders-7f9c".into(),
            slots: 60,
            leases,
            active: 6_140 + leases,
            limit: 10_000,
            outage: None,
        });
        snapshot.token = Some(TokenSnapshot { age, good_for: Duration::from_secs(900) - age, failures: 0 });
        Some(snapshot)
    }

    fn connections(&self) -> Vec<forebay::ConnectionStatus> {
        self.reservoir.connections()
    }
}
