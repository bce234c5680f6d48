//! Permits that are reserved, moved by wrong clocks, and corrected.

use super::*;
use crate::memory::MemoryTable;
use crate::table::{Table, TableError};
use forebay::rt::VirtualTime;

const WALL: Duration = Duration::from_secs(1_800_000_000);

fn reserve(bucket: &mut Bucket, table: &MemoryTable, mut count: u32, wall: Duration) -> ReserveOutcome {
    loop {
        let update = bucket.reserve(count, wall);
        let outcome = match VirtualTime::new().run(table.update(&update)) {
            Ok(item) => bucket.granted(count, wall, item.as_ref()),
            Err(TableError::ConditionFailed(item)) => bucket.refused(count, wall, item.as_deref()),
            Err(error) => panic!("{error}"),
        };
        match outcome {
            ReserveOutcome::Retry(fewer) => count = fewer,
            outcome => return outcome,
        }
    }
}

fn permits(outcome: ReserveOutcome) -> Vec<Duration> {
    match outcome {
        ReserveOutcome::Reserved(permits) => permits.into_iter().map(|permit| permit.from).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_then_the_rate_for_all_instances() {
    let table = MemoryTable::new();
    let new = || Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
    let (mut one, mut other) = (new(), new());
    let mut all = permits(reserve(&mut one, &table, 400, WALL));
    all.extend(permits(reserve(&mut other, &table, 400, WALL)));
    let at_once = all.iter().filter(|time| **time <= WALL).count();
    assert_eq!(at_once, 550, "four fifths of the burst, less the reserve of 2.5 s");
    assert_eq!(all[799] - all[550], Duration::from_micros(12_500) * 249, "80 a second");
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    let later = WALL + Duration::from_secs(3600);
    let again = permits(reserve(&mut one, &table, 551, later));
    assert_eq!(
        again.iter().filter(|time| **time <= later).count(),
        550,
        "a burst, and no more for the quiet"
    );
}

#[test]
fn a_permit_lapses_a_second_after_it_is_due() {
    let table = MemoryTable::new();
    let mut bucket = Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    let ReserveOutcome::Reserved(permits) = reserve(&mut bucket, &table, 800, WALL) else {
        panic!("no permits")
    };
    assert!(permits.iter().all(|permit| permit.until == permit.from.max(WALL) + PERMIT_LIFE));
    assert!(permits[0].from < WALL && permits[799].from > WALL);
}

#[test]
fn permits_that_shares_may_save_above_their_part_are_kept_back() {
    for (kept_back, at_once) in [(50, 500), (0, 550), (100_000, 1)] {
        let table = MemoryTable::new();
        let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        bucket.hold_back(kept_back);
        let times = permits(reserve(&mut bucket, &table, 600, WALL));
        assert_eq!(times.iter().filter(|time| **time <= WALL).count(), at_once, "{kept_back} kept back");
    }
}

#[test]
fn the_item_is_read_only_when_the_burst_may_be_complete() {
    let table = MemoryTable::new();
    let mut bucket = Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    assert_eq!(bucket.unknown(WALL), Some("forebay_bucket#host"));
    bucket.saw(None);
    assert_eq!(bucket.queue(WALL), Duration::ZERO);
    permits(reserve(&mut bucket, &table, 850, WALL));
    assert_eq!((bucket.unknown(WALL), bucket.queue(WALL)), (None, Duration::from_millis(1010)));
    let later = WALL + Duration::from_secs(8);
    assert_eq!((bucket.unknown(later), bucket.queue(later)), (None, Duration::ZERO));
    assert!(bucket.unknown(later + Duration::from_secs(1)).is_some());
}

#[test]
fn a_full_queue_is_not_tried_again_for_a_while() {
    let table = MemoryTable::new();
    let mut bucket = Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    permits(reserve(&mut bucket, &table, 750, WALL));
    let ahead = permits(reserve(&mut bucket, &table, 2800, WALL));
    let last = *ahead.last().unwrap();
    assert_eq!((ahead.len(), last), (2700, WALL + Duration::from_secs(27)), "none after the horizon");
    match reserve(&mut bucket, &table, 1, WALL) {
        ReserveOutcome::RetryAfter { pause, spread } => {
            assert_eq!(pause + spread, Duration::from_millis(13_510));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(Bucket::new("host", 1, 1, false, Duration::from_secs(30)).max_batch(), 27);
}

#[test]
fn a_time_moved_by_a_wrong_clock_is_corrected_by_an_instance_that_saw_it_before() {
    let (table, hour) = (MemoryTable::new(), Duration::from_secs(3600));
    let new = || Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    let (mut good, mut wrong) = (new(), new());
    permits(reserve(&mut good, &table, 1000, WALL));
    permits(reserve(&mut wrong, &table, 1, WALL + hour));
    let after = permits(reserve(&mut good, &table, 1, WALL));
    assert_eq!(after[0], WALL + Duration::from_millis(2510), "where it was");
    permits(reserve(&mut wrong, &table, 1, WALL + hour));
    let soon = WALL + Duration::from_secs(1);
    assert!(
        matches!(reserve(&mut good, &table, 1, soon), ReserveOutcome::RetryAfter { .. }),
        "not again and again"
    );
    permits(reserve(&mut good, &table, 1, WALL + Duration::from_secs(28)));
}

#[test]
fn an_instance_that_may_be_wrong_itself_does_not_correct_a_busy_queue() {
    let (table, hour) = (MemoryTable::new(), Duration::from_secs(3600));
    let new = || Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    let (mut late, mut others) = (new(), new());
    for second in 0..300 {
        let wall = WALL + Duration::from_secs(second);
        permits(reserve(&mut others, &table, 100, wall + hour));
        match reserve(&mut late, &table, 1, wall) {
            ReserveOutcome::RetryAfter { pause, spread } => {
                assert_eq!(pause + spread, Duration::from_secs(27), "it may be corrected by then")
            }
            other => panic!("{other:?}"),
        }
    }
    let quiet = WALL + Duration::from_secs(330);
    permits(reserve(&mut late, &table, 1, quiet));
    // The others know that permits after that are reserved.
    let next = permits(reserve(&mut others, &table, 1, quiet + hour));
    assert!(next[0] >= quiet + hour - Duration::from_millis(7490), "no more than they have saved");
    table.expire(&key("host"));
    permits(reserve(&mut others, &table, 749, quiet + hour));
    let next = permits(reserve(&mut others, &table, 1, quiet + hour));
    assert!(next[0] >= quiet + hour, "the burst once, also if the item is deleted");
}

#[test]
fn extreme_settings_do_no_harm() {
    let table = MemoryTable::new();
    for (rate, burst, wait) in
        [(u64::MAX, u64::MAX, Duration::MAX), (1, u64::MAX, Duration::ZERO), (0, 0, Duration::ZERO)]
    {
        let mut bucket = Bucket::new("host", rate, burst, true, wait);
        table.expire(&key("host"));
        permits(reserve(&mut bucket, &table, 1, WALL));
        permits(reserve(&mut bucket, &table, 1, WALL + Duration::from_secs(3)));
    }
}

#[test]
fn a_time_written_by_hand_does_no_harm() {
    for due in [i64::MIN, -1, 0, i64::MAX] {
        let table = MemoryTable::new();
        let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        permits(reserve(&mut bucket, &table, 600, WALL));
        table.put(&key("host"), Item::new().with("due_ns", due));
        let soon = WALL + Duration::from_secs(1);
        let time = permits(reserve(&mut bucket, &table, 1, soon))[0];
        assert!(
            time > WALL - Duration::from_secs(30) && time < soon + Duration::from_secs(30),
            "{due}: {time:?}"
        );
    }
}
