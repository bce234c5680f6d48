//! A bb8 pool whose connections come from a reservoir: `cargo run -p forebay --example bb8`

use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::TokioRuntime;
use forebay::{Config, Reservoir, ReservoirManager};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Memory::new(TokioRuntime::current()?);
    let config = Config::default().max_open(12).startup_jitter(Duration::ZERO);
    let reservoir = Reservoir::builder(server.clone()).config(config).start().await?;

    let pool = bb8::Pool::builder().max_size(10).build(ReservoirManager::new(reservoir.clone())).await?;
    for _ in 0..3 {
        let connection = pool.get().await?;
        println!("connection {} is {:?} old", connection.id(), connection.age());
    }
    println!("the server has opened {}, the pool holds {}", server.opened(), pool.state().connections);

    drop(pool);
    let drained = reservoir.drain(Duration::from_secs(5)).await;
    println!("drained: {}", drained.is_complete());
    Ok(())
}
