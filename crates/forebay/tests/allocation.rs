//! The fast path allocates nothing. This is a separate binary, since the counter is the global allocator.

use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::TokioRuntime;
use forebay::{Config, Connect, ConnectionMonitor, OpenError, Reservoir};

struct Plain;

impl Connect for Plain {
    type Connection = u64;

    async fn open(&self, _: ConnectionMonitor) -> Result<u64, OpenError> {
        Ok(7)
    }
}

fn config() -> Config {
    Config::default().max_open(4).startup_jitter(Duration::ZERO)
}

async fn allocations_of(turns: impl AsyncFn()) -> u64 {
    // Runs once before, so that nothing is set up while it counts.
    turns().await;
    let info = allocation_counter::measure(|| {
        let mut turns = std::pin::pin!(turns());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(turns.as_mut().poll(&mut context).is_ready(), "the fast path does not wait");
    });
    info.count_total
}

#[tokio::test]
async fn checking_out_and_giving_back_allocate_nothing() {
    let reservoir = Reservoir::builder(Plain).config(config()).start().await.unwrap();
    let tried = allocations_of(async || {
        for _ in 0..1000 {
            let first = reservoir.try_checkout().unwrap();
            let second = reservoir.try_checkout().unwrap();
            drop(first);
            drop(second);
        }
    });
    assert_eq!(tried.await, 0);
    let awaited = allocations_of(async || {
        for _ in 0..1000 {
            drop(reservoir.checkout().await.unwrap());
        }
    });
    assert_eq!(awaited.await, 0);
    let owned = allocations_of(async || drop(reservoir.checkout().await.unwrap().into_owned()));
    assert_eq!(owned.await, 0);
    let refused = allocations_of(async || {
        let held: [_; 4] = std::array::from_fn(|_| reservoir.try_checkout().unwrap());
        assert!(reservoir.try_checkout().is_err());
        drop(held);
    });
    assert_eq!(refused.await, 0, "a refusal that comes at once is as cheap");
}

#[tokio::test]
async fn the_counter_counts() {
    let memory = Memory::new(TokioRuntime::current().unwrap());
    let counted = allocations_of(async || drop(std::hint::black_box(Box::new(memory.clone()))));
    assert_eq!(counted.await, 1);
}
