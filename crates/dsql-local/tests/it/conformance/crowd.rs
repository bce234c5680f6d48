//! Many concurrent sessions.

use super::check::{self, Saved};
use super::client::{Client, say};
use super::run::{PATIENCE, first_value, limited};
use super::tree::Node;

/// How many sessions a step needs.
pub(super) fn size(step: &Node) -> usize {
    number(step, "parallel")
}

/// Runs the step's statement in each session. Every answer must be an expected one, and the number of
/// successes must be what the database counted.
pub(super) async fn run(step: &Node, sessions: Vec<Client>, mut judge: Client) -> Result<(), String> {
    let mut tasks = Vec::new();
    for mut session in sessions {
        let (outcomes, each) = (step.list("outcomes").to_vec(), number(step, "each"));
        let sql = step.text("sql").unwrap().to_owned();
        tasks.push(tokio::spawn(async move {
            let mut successes = 0;
            for _ in 0..each {
                let exchange = limited(PATIENCE, session.ask(&say::query(&sql))).await?;
                let fits = |outcome: &&Node| check::exchange(outcome, &exchange, &Saved::new()).is_ok();
                let outcome = outcomes.iter().find(fits).ok_or_else(|| format!("got {exchange:?}"))?;
                successes += usize::from(!check::fails(outcome));
            }
            Ok::<usize, String>(successes)
        }));
    }
    let mut successes = 0;
    for task in tasks {
        successes += task.await.unwrap()?;
    }
    let counted = limited(PATIENCE, judge.ask(&say::query(step.text("check").unwrap()))).await?;
    let counted = first_value(&counted);
    let same = counted.as_deref() == Some(successes.to_string().as_str());
    if same { Ok(()) } else { Err(format!("{successes} succeeded, the database counted {counted:?}")) }
}

fn number(step: &Node, key: &str) -> usize {
    step.text(key).unwrap().parse().unwrap()
}
