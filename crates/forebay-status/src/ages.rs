//! How old the connections of a pool are.

use std::time::Duration;

use forebay::{ConnectionPhase, ConnectionStatus};

use crate::sample::Lifecycle;

/// The most bars of the histogram.
const BARS: u64 = 60;

/// The widths that a bar can have, in seconds, so that its bounds are round.
const WIDTHS: [u64; 14] = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 21_600];

/// A histogram of ages, and when the next connections end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ages {
    /// The width of each bar.
    pub(crate) width: Duration,
    /// The connections in each bar, by what happens with them.
    pub(crate) ready: Vec<u64>,
    pub(crate) in_use: Vec<u64>,
    pub(crate) in_maintenance: Vec<u64>,
    /// The age of the oldest connection.
    pub(crate) oldest: Duration,
    /// The time until the next connection is replaced. Zero if that is due.
    pub(crate) next_retirement: Option<Duration>,
    /// The smallest age at which a connection of now is replaced, or not lent any more.
    pub(crate) earliest_retirement: Option<Duration>,
    pub(crate) earliest_guard: Option<Duration>,
    /// The time until a connection that is still open reaches its guard window.
    pub(crate) next_guard: Option<Duration>,
}

impl Ages {
    pub(crate) fn of(connections: &[ConnectionStatus], lifecycle: &Lifecycle) -> Self {
        let oldest = connections.iter().map(|connection| connection.age).max().unwrap_or_default();
        let width = width(oldest.max(horizon(lifecycle)));
        let bars = usize::try_from(oldest.max(horizon(lifecycle)).as_secs() / width + 1).unwrap_or(1);
        let mut ages = Self {
            width: Duration::from_secs(width),
            ready: vec![0; bars],
            in_use: vec![0; bars],
            in_maintenance: vec![0; bars],
            oldest,
            ..Self::default()
        };
        for connection in connections {
            let bar = usize::try_from(connection.age.as_secs() / width).unwrap_or(bars).min(bars - 1);
            match connection.phase {
                ConnectionPhase::InUse => ages.in_use[bar] += 1,
                ConnectionPhase::InMaintenance => ages.in_maintenance[bar] += 1,
                _ => ages.ready[bar] += 1,
            }
        }
        let least =
            |read: &dyn Fn(&ConnectionStatus) -> Option<Duration>| connections.iter().filter_map(read).min();
        ages.next_retirement = least(&|connection| connection.retires_in);
        ages.next_guard = least(&|connection| connection.stale_in);
        ages.earliest_retirement = least(&|connection| Some(connection.age + connection.retires_in?));
        ages.earliest_guard = least(&|connection| Some(connection.age + connection.stale_in?));
        ages
    }
}

/// The age up to which the histogram goes at least: the longest life, or else the server's limit. A limit far
/// beyond the longest life would leave no room for the bars.
fn horizon(lifecycle: &Lifecycle) -> Duration {
    let longest = lifecycle.lifetime.map(|lifetime| lifetime.base.saturating_add(lifetime.jitter / 2));
    longest.or(lifecycle.server_limit).unwrap_or_default()
}

fn width(range: Duration) -> u64 {
    let fits = |width: &&u64| range.as_secs() / **width < BARS;
    let round = WIDTHS.iter().find(fits).copied();
    round.unwrap_or_else(|| (range.as_secs() / BARS + 1).next_multiple_of(3_600))
}

#[cfg(test)]
mod tests {
    use forebay::rt::{Runtime, VirtualTime};
    use forebay::{Config, Lifetime, Reservoir, memory::Memory};

    use super::*;

    #[test]
    fn bars_are_round_and_few() {
        let seconds = [0, 59, 60, 720, 3_600, 7 * 24 * 3_600, 60 * 24 * 3_600];
        assert_eq!(
            seconds.map(|seconds| width(Duration::from_secs(seconds))),
            [1, 1, 2, 15, 120, 21_600, 90_000]
        );
        for seconds in (0..10_000_000).step_by(9_973) {
            assert!(seconds / width(Duration::from_secs(seconds)) < BARS, "{seconds}");
        }
    }

    #[test]
    fn ages_of_a_real_reservoir() {
        let time = VirtualTime::new();
        let life = Lifetime::new(Duration::from_secs(600)).guard_window(Duration::from_secs(60));
        let config = Config::default()
            .max_open(4)
            .lifetime(life)
            .server_limit(Duration::from_secs(3_600))
            .startup_jitter(Duration::ZERO);
        let lifecycle =
            Lifecycle { lifetime: Some(life), server_limit: config.server_limit, ..Lifecycle::default() };
        let builder = Reservoir::builder(Memory::new(time.clone())).config(config).runtime(time.clone());
        let reservoir = time.run(builder.start()).unwrap();
        let opened = time.now();
        time.advance(Duration::from_secs(30));
        let held = reservoir.try_checkout().unwrap();
        let ages = Ages::of(&reservoir.connections(), &lifecycle);
        assert_eq!((ages.width, ages.ready.len()), (Duration::from_secs(15), 41), "to the longest life");
        assert_eq!((ages.ready[2], ages.in_use[2], ages.in_maintenance[2]), (3, 1, 0));
        assert_eq!(ages.oldest, time.now().since(opened));
        assert_eq!(ages.earliest_guard, Some(Duration::from_secs(540)));
        assert!(ages.earliest_retirement < ages.earliest_guard, "{ages:?}");
        drop(held);
        assert_eq!(Ages::of(&[], &lifecycle).earliest_guard, None);
    }
}
