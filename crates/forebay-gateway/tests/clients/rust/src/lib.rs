//! What the Rust clients share: laps, and the count of what went wrong. See lap.py.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// What a round ends with if something failed.
pub type Failure = Box<dyn Error>;

/// A number from the environment.
pub fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether the server behind the gateway undoes SET at ROLLBACK.
pub fn undoes_set() -> bool {
    std::env::var("UNDOES_SET").is_ok_and(|value| value == "1")
}

/// Whether COPY is tried.
pub fn copies() -> bool {
    std::env::var("COPIES").map_or(true, |value| value != "0")
}

#[derive(Default)]
struct Counts {
    rounds: i32,
    checks: u64,
    errors: u64,
    lost: u64,
    wrong: u64,
    notes: Vec<String>,
}

thread_local! {
    static COUNTS: RefCell<Counts> = RefCell::default();
}

fn same<T: PartialEq + Debug>(what: &str, got: &T, expected: &T, failed: impl FnOnce(&mut Counts)) {
    COUNTS.with_borrow_mut(|counts| {
        counts.checks += 1;
        if got != expected {
            failed(counts);
            note(counts, format!("{what}: got {got:.200?}, expected {expected:.200?}"));
        }
    });
}

fn note(counts: &mut Counts, text: String) {
    if counts.notes.len() < 5 {
        counts.notes.push(text);
    }
}

/// What a query returned.
pub fn row<T: PartialEq + Debug>(what: &str, got: T, expected: T) {
    same(what, &got, &expected, |counts| counts.wrong += 1);
}

/// What a setting is.
pub fn setting(what: &str, got: &str, expected: &str) {
    same(what, &got, &expected, |counts| counts.lost += 1);
}

/// A short time, or none.
pub async fn pause(round: i32) {
    if round % 4 > 1 {
        tokio::time::sleep(Duration::from_millis([0, 0, 2, 20][(round % 4) as usize])).await;
    }
}

/// One client.
#[allow(async_fn_in_trait)]
pub trait Client: Sized {
    /// Opens it.
    async fn open(number: usize) -> Result<Self, Failure>;
    /// One round of work.
    async fn round(&mut self, round: i32) -> Result<(), Failure>;
}

/// Runs laps until it is told to end, and prints the counts.
pub async fn laps<C: Client>() -> Result<(), Failure> {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let connections = number("CONNECTIONS", 4.0) as usize;
    let lap = Duration::from_secs_f64(number("LAP", 2.0));
    let mut answers = BufReader::new(tokio::io::stdin()).lines();
    let mut clients = Vec::new();
    for number in 0..connections {
        clients.push(C::open(number).await?);
    }
    loop {
        let end = Instant::now() + lap;
        let work = clients.iter_mut().enumerate().map(async |(number, client)| {
            while Instant::now() < end {
                let round = COUNTS.with_borrow_mut(|counts| {
                    counts.rounds += 1;
                    counts.rounds
                });
                if let Err(error) = client.round(round).await {
                    COUNTS.with_borrow_mut(|counts| {
                        counts.errors += 1;
                        note(counts, format!("{error}: {error:?}"));
                    });
                    *client = C::open(number).await?;
                }
            }
            Ok::<_, Failure>(())
        });
        for done in futures_util::future::join_all(work).await {
            done?;
        }
        println!("idle");
        if answers.next_line().await?.as_deref() != Some("go") {
            break;
        }
    }
    COUNTS.with_borrow(|counts| {
        let Counts { rounds, checks, errors, lost, wrong, notes } = counts;
        let notes: Vec<_> = notes.iter().map(|note| quote(note)).collect();
        println!(
            r#"{{"rounds": {rounds}, "checks": {checks}, "errors": {errors}, "lost settings": {lost}, "wrong rows": {wrong}, "notes": [{}]}}"#,
            notes.join(", ")
        );
    });
    Ok(())
}

/// Text as JSON.
fn quote(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c < ' ' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
