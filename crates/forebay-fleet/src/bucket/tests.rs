//! Turns as they are taken, moved and brought back.

use super::*;
use crate::memory::MemoryTable;
use crate::table::{Table, TableError};
use forebay::rt::VirtualTime;

const WALL: Duration = Duration::from_secs(1_800_000_000);

fn reserve(bucket: &mut Bucket, table: &MemoryTable, mut count: u32, wall: Duration) -> Verdict {
    loop {
        let update = bucket.ask(count, wall);
        let verdict = match VirtualTime::new().run(table.update(&update)) {
            Ok(item) => bucket.granted(count, wall, item.as_ref()),
            Err(TableError::ConditionFailed(item)) => bucket.refused(count, wall, item.as_deref()),
            Err(error) => panic!("{error}"),
        };
        match verdict {
            Verdict::Again(fewer) => count = fewer,
            verdict => return verdict,
        }
    }
}

fn turns(verdict: Verdict) -> Vec<Duration> {
    match verdict {
        Verdict::Turns(turns) => turns,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_then_the_rate_whoever_asks() {
    let table = MemoryTable::new();
    let new = || Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
    let (mut one, mut other) = (new(), new());
    let mut all = turns(reserve(&mut one, &table, 400, WALL));
    all.extend(turns(reserve(&mut other, &table, 400, WALL)));
    let at_once = all.iter().filter(|turn| **turn <= WALL).count();
    assert_eq!(at_once, 550, "four fifths of the burst, less the reserve of 2.5 s");
    assert_eq!(all[799] - all[550], Duration::from_micros(12_500) * 249, "80 a second");
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    let later = WALL + Duration::from_secs(3600);
    let again = turns(reserve(&mut one, &table, 551, later));
    assert_eq!(
        again.iter().filter(|turn| **turn <= later).count(),
        550,
        "a burst, and no more for the quiet"
    );
}

#[test]
fn what_shares_may_save_beyond_their_part_is_held_back() {
    for (permits, at_once) in [(50, 500), (0, 550), (100_000, 1)] {
        let table = MemoryTable::new();
        let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        bucket.hold_back(permits);
        let turns = turns(reserve(&mut bucket, &table, 600, WALL));
        assert_eq!(turns.iter().filter(|turn| **turn <= WALL).count(), at_once, "{permits} held back");
    }
}

#[test]
fn one_looks_only_when_the_burst_may_be_whole() {
    let table = MemoryTable::new();
    let mut bucket = Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    assert_eq!(bucket.unknown(WALL), Some("forebay_bucket#host"));
    bucket.saw(None);
    assert_eq!(bucket.line(WALL), Duration::ZERO);
    turns(reserve(&mut bucket, &table, 850, WALL));
    assert_eq!((bucket.unknown(WALL), bucket.line(WALL)), (None, Duration::from_millis(1010)));
    let later = WALL + Duration::from_secs(8);
    assert_eq!((bucket.unknown(later), bucket.line(later)), (None, Duration::ZERO));
    assert!(bucket.unknown(later + Duration::from_secs(1)).is_some());
}

#[test]
fn a_line_that_is_too_long_is_left_alone_for_a_while() {
    let table = MemoryTable::new();
    let mut bucket = Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    turns(reserve(&mut bucket, &table, 750, WALL));
    let ahead = turns(reserve(&mut bucket, &table, 2800, WALL));
    let last = *ahead.last().unwrap();
    assert_eq!((ahead.len(), last), (2700, WALL + Duration::from_secs(27)), "none after the horizon");
    match reserve(&mut bucket, &table, 1, WALL) {
        Verdict::Later(pause) => assert_eq!(pause, Duration::from_millis(13_510)),
        other => panic!("{other:?}"),
    }
    assert_eq!(Bucket::new("host", 1, 1, false, Duration::from_secs(30)).most(), 27);
}

#[test]
fn a_turn_that_a_wrong_clock_moved_is_brought_back_by_whoever_saw_it_in_its_place() {
    let (table, hour) = (MemoryTable::new(), Duration::from_secs(3600));
    let new = || Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    let (mut good, mut wrong) = (new(), new());
    turns(reserve(&mut good, &table, 1000, WALL));
    turns(reserve(&mut wrong, &table, 1, WALL + hour));
    let after = turns(reserve(&mut good, &table, 1, WALL));
    assert_eq!(after[0], WALL + Duration::from_millis(2510), "where it was");
    turns(reserve(&mut wrong, &table, 1, WALL + hour));
    let soon = WALL + Duration::from_secs(1);
    assert!(matches!(reserve(&mut good, &table, 1, soon), Verdict::Later(_)), "not again and again");
    turns(reserve(&mut good, &table, 1, WALL + Duration::from_secs(28)));
}

#[test]
fn whoever_may_be_wrong_itself_leaves_a_busy_line_alone() {
    let (table, hour) = (MemoryTable::new(), Duration::from_secs(3600));
    let new = || Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
    let (mut late, mut others) = (new(), new());
    for second in 0..300 {
        let wall = WALL + Duration::from_secs(second);
        turns(reserve(&mut others, &table, 100, wall + hour));
        match reserve(&mut late, &table, 1, wall) {
            Verdict::Later(pause) => {
                assert_eq!(pause, Duration::from_secs(27), "it may be mended by then")
            }
            other => panic!("{other:?}"),
        }
    }
    let quiet = WALL + Duration::from_secs(330);
    turns(reserve(&mut late, &table, 1, quiet));
    // What it took back, the others know better.
    let next = turns(reserve(&mut others, &table, 1, quiet + hour));
    assert!(next[0] >= quiet + hour - Duration::from_millis(7490), "no more than they have saved");
    table.expire(&key("host"));
    turns(reserve(&mut others, &table, 749, quiet + hour));
    let next = turns(reserve(&mut others, &table, 1, quiet + hour));
    assert!(next[0] >= quiet + hour, "the burst once, also if the item is deleted");
}

#[test]
fn numbers_that_make_no_sense_do_no_harm() {
    let table = MemoryTable::new();
    for (rate, burst, wait) in
        [(u64::MAX, u64::MAX, Duration::MAX), (1, u64::MAX, Duration::ZERO), (0, 0, Duration::ZERO)]
    {
        let mut bucket = Bucket::new("host", rate, burst, true, wait);
        table.expire(&key("host"));
        turns(reserve(&mut bucket, &table, 1, WALL));
        turns(reserve(&mut bucket, &table, 1, WALL + Duration::from_secs(3)));
    }
}

#[test]
fn a_turn_that_somebody_wrote_by_hand_does_no_harm() {
    for due in [i64::MIN, -1, 0, i64::MAX] {
        let table = MemoryTable::new();
        let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        turns(reserve(&mut bucket, &table, 600, WALL));
        table.put(&key("host"), Item::new().with("due_ns", due));
        let soon = WALL + Duration::from_secs(1);
        let turn = turns(reserve(&mut bucket, &table, 1, soon))[0];
        assert!(
            turn > WALL - Duration::from_secs(30) && turn < soon + Duration::from_secs(30),
            "{due}: {turn:?}"
        );
    }
}
