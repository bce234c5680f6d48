//! How many instructions a checkout takes: unlike time, the count does not depend on other load.
//!
//! callgrind counts all but those in the kernel's vDSO: valgrind hides the vDSO, so that reading the clock
//! becomes a system call, which it does not count. The goal is for callgrind's count; the report shows those
//! of the vDSO beside it.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::checkout::uncontended::{CONNECTIONS, try_turns};
use crate::peers::{Forebay, Pool};
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// The count is the difference between these two numbers of turns, so that the start of the program cancels
/// out.
const TURNS: [u32; 2] = [20_000, 120_000];

/// What `clock_gettime(CLOCK_MONOTONIC_COARSE)` takes inside the vDSO, from its entry to its return. Found by
/// stepping through it with gdb, on x86-64 and Linux 6.18; other kernels differ by a few.
const VDSO: f64 = 45.0;

const UNIT: &str = "instructions";

/// Adds the goal.
pub(crate) fn measure(report: &mut Report) {
    progress("instructions");
    let counted = in_callgrind();
    let goal = "instructions per try_checkout + return, by callgrind, with the call of the clock";
    report.at_most(goal, counted.as_ref().ok().copied(), 130.0, UNIT);
    match counted {
        Ok(counted) => {
            let clock = in_perf().map_or(VDSO, |whole| whole - counted);
            let rows = [("by callgrind", counted), ("clock read inside the vDSO", clock)];
            let rows = rows.map(|(name, value)| Figures::of(name, vec![value]).expect("one value"));
            report.table("instructions per try_checkout + return", UNIT, rows.to_vec());
            report.note(
                "callgrind does not count inside the kernel's vDSO, where the clock is read: a second row \
                 shows that part, from perf or, without a hardware counter, as a constant found by stepping \
                 through it",
            );
        }
        Err(error) => report.note(format!("instructions could not be counted: {error:#}")),
    }
}

/// Instructions of one turn, by callgrind.
fn in_callgrind() -> anyhow::Result<f64> {
    per_turn(|turns| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        let text = spun_in(command, turns).context("running valgrind (apt-get install valgrind)")?;
        let collected =
            text.lines().find_map(|line| line.split_once("Collected :")?.1.split_whitespace().next());
        collected
            .context("valgrind did not say what it collected")?
            .parse()
            .context("reading valgrind's count")
    })
}

/// Instructions of one turn, by the processor; `None` if it does not count, as in most virtual machines.
fn in_perf() -> Option<f64> {
    let counted = per_turn(|turns| {
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", "instructions:u"]);
        let text = spun_in(command, turns)?;
        let count = text.lines().find_map(|line| line.split_once(",,instructions:u")?.0.parse().ok());
        count.context("perf has no count")
    });
    counted.ok()
}

fn per_turn(count: impl Fn(u32) -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    let [few, many] = TURNS;
    Ok(count(many)?.saturating_sub(count(few)?) as f64 / f64::from(many - few))
}

/// Runs [`spin`] in `profiler`, and returns what that prints on standard error.
fn spun_in(mut profiler: Command, turns: u32) -> anyhow::Result<String> {
    let exe = std::env::current_exe().context("finding this program")?;
    let output = profiler.arg(exe).args(["spin", "--turns", &turns.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "it failed: {}", text.trim());
    Ok(text)
}

/// For a profiler: checks out and returns on one thread, and does nothing else.
pub(crate) fn spin(turns: u32) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pool = runtime.block_on(Forebay::filled(CONNECTIONS))?;
    try_turns(&pool, turns).map(drop)
}
