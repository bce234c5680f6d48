//! How many instructions a checkout takes: unlike time, the same on a busy machine.
//!
//! callgrind counts them, all but some: valgrind hides the kernel's vDSO from the program it watches, so that reading
//! the clock becomes a system call whose inside it does not see. The goal is judged by callgrind's count; what the vDSO
//! takes is shown beside it.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::checkout::progress;
use crate::checkout::uncontended::{CONNECTIONS, try_turns};
use crate::peers::Forebay;
use crate::pool::Pool;
use crate::race::Figures;
use crate::report::{Bound, Report, Table};

/// The difference between so many turns and so many is what is counted, so that starting up cancels out.
const TURNS: [u32; 2] = [20_000, 120_000];

/// What `clock_gettime(CLOCK_MONOTONIC_COARSE)` takes inside the vDSO, from its entry to its return. Found by stepping
/// through it with gdb, on x86-64 and Linux 6.18; other kernels differ by a few.
const VDSO: f64 = 45.0;

const UNIT: &str = "instructions";

/// Adds the goal.
pub fn measure(report: &mut Report) {
    progress("instructions");
    let counted = in_callgrind();
    report.goal(
        "instructions per try_checkout + return, by callgrind, with the call of the clock",
        counted.as_ref().ok().copied(),
        Bound::AtMost(130.0),
        UNIT,
    );
    match counted {
        Ok(counted) => {
            let clock = in_perf().map_or(VDSO, |whole| whole - counted);
            let rows = [("by callgrind", counted), ("clock read inside the vDSO", clock)];
            let rows = rows.map(|(name, value)| Figures {
                name: name.to_owned(),
                median: value,
                min: value,
                max: value,
                rounds: 1,
            });
            let name = "instructions per try_checkout + return".to_owned();
            report.tables.push(Table { name, unit: UNIT, rows: rows.to_vec() });
            report.note(
                "callgrind cannot look into the kernel's vDSO, where the clock is read: that part is shown apart, from \
                 perf, or, where there is no hardware counter, as a constant found by stepping through it",
            );
        }
        Err(error) => report.note(format!("instructions could not be counted: {error:#}")),
    }
}

/// Instructions of one turn, as callgrind sees them.
fn in_callgrind() -> anyhow::Result<f64> {
    per_turn(|turns| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        let said =
            spun_in(command, turns).context("running valgrind (to install it: apt-get install valgrind)")?;
        let collected =
            said.lines().find_map(|line| line.split_once("Collected :")?.1.split_whitespace().next());
        collected
            .context("valgrind did not say what it collected")?
            .parse()
            .context("reading valgrind's count")
    })
}

/// Instructions of one turn, as the processor counts them; none if it does not, as in most virtual machines.
fn in_perf() -> Option<f64> {
    let counted = per_turn(|turns| {
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", "instructions:u"]);
        let said = spun_in(command, turns)?;
        let count = said.lines().find_map(|line| line.split_once(",,instructions:u")?.0.parse().ok());
        count.context("perf has no count")
    });
    counted.ok()
}

fn per_turn(count: impl Fn(u32) -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    let [few, many] = TURNS;
    let more = count(many)?.saturating_sub(count(few)?);
    #[allow(clippy::cast_precision_loss, reason = "some millions")]
    let more = more as f64;
    Ok(more / f64::from(many - few))
}

/// Runs [`spin`] under the eyes of `watcher`, and returns what that said on standard error.
fn spun_in(mut watcher: Command, turns: u32) -> anyhow::Result<String> {
    let exe = std::env::current_exe().context("finding this program")?;
    let output = watcher.arg(exe).args(["spin", "--turns", &turns.to_string()]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "it failed: {}", said.trim());
    Ok(said)
}

/// What is watched: borrows and gives back, on one thread, and does nothing else.
///
/// # Errors
/// If the reservoir does not start.
pub fn spin(turns: u32) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pool = runtime.block_on(Forebay::filled(CONNECTIONS))?;
    try_turns(&pool, turns).map(drop)
}
