//! A whole workflow: everything that a server loads to work on a run.

use futures_util::future::{self, FutureExt};

use crate::blob::Blob;
use crate::buffered_event;
use crate::connection::{Connection, Value};
use crate::current_execution::{self, CurrentExecutionRow, WorkflowKey};
use crate::error::{Error, Result};
use crate::execution::{self, ExecutionRow, RunKey};
use crate::execution_map::{
    self, ActivityInfos, ChasmNodes, ChildExecutionInfos, Entries, MapTable, RequestCancelInfos, SignalInfos,
    SignalsRequested, TimerInfos,
};
use crate::persistence::Persistence;

/// A run with all its parts, as of one moment.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// The row of the run.
    pub execution: ExecutionRow,
    /// The current run of its workflow, which may be another one.
    pub current: Option<CurrentExecutionRow>,
    /// Its activities.
    pub activity_infos: Entries<ActivityInfos>,
    /// Its timers.
    pub timer_infos: Entries<TimerInfos>,
    /// Its child workflows.
    pub child_execution_infos: Entries<ChildExecutionInfos>,
    /// Its requests to cancel.
    pub request_cancel_infos: Entries<RequestCancelInfos>,
    /// Its signals to others.
    pub signal_infos: Entries<SignalInfos>,
    /// The signals it has got.
    pub signals_requested: Entries<SignalsRequested>,
    /// The nodes of its chasm tree.
    pub chasm_nodes: Entries<ChasmNodes>,
    /// Its buffered events, in the order of their ids.
    pub buffered_events: Vec<Blob>,
}

/// Loads a run with all its parts, in one snapshot.
///
/// All statements leave in one piece, from BEGIN to COMMIT, so the client waits for one round trip; for one more on a connection that
/// has not prepared them yet. It only reads, so nothing is at stake if BEGIN fails and the others do not.
///
/// # Errors
/// [`Error::NotFound`] if there is no such run.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn load(persistence: &Persistence, run: &RunKey) -> Result<Workflow> {
    persistence.read("load_workflow", |connection| async move { load_on(&connection, run).await }).await
}

async fn load_on(connection: &Connection, run: &RunKey) -> Result<Workflow> {
    fn all<T: MapTable>() -> &'static str {
        execution_map::select_all_sql::<T>()
    }
    let RunKey { shard_id, namespace_id, workflow_id, .. } = run;
    let key =
        WorkflowKey { shard_id: *shard_id, namespace_id: *namespace_id, workflow_id: workflow_id.clone() };
    let (of_run, of_workflow): (Vec<Value<'_>>, _) = (run.values().to_vec(), key.values());
    let queries: [(&str, &[Value<'_>]); 10] = [
        (execution::SELECT, &of_run),
        (current_execution::select_sql(), &of_workflow),
        (all::<ActivityInfos>(), &of_run),
        (all::<TimerInfos>(), &of_run),
        (all::<ChildExecutionInfos>(), &of_run),
        (all::<RequestCancelInfos>(), &of_run),
        (all::<SignalInfos>(), &of_run),
        (all::<SignalsRequested>(), &of_run),
        (all::<ChasmNodes>(), &of_run),
        (buffered_event::SELECT_ALL, &of_run),
    ];
    let statements = future::try_join_all(queries.iter().map(|(sql, _)| connection.prepare(sql))).await?;

    // Each is sent at its first poll, and so few are polled in this order.
    let begin = connection.batch("BEGIN").map(|begun| begun.map(|()| Vec::new())).boxed();
    let reads = statements.iter().zip(queries);
    let reads = reads.map(|(statement, (_, values))| connection.query_prepared(statement, values).boxed());
    let commit = connection.batch("COMMIT").map(|ended| ended.map(|()| Vec::new())).boxed();
    let answers = future::join_all(std::iter::once(begin).chain(reads).chain([commit])).await;

    // The first error is the cause of all others.
    let answers = answers.into_iter().collect::<Result<Vec<_>>>()?;
    let [_, execution, current, activities, timers, children, cancels, signals, requested, nodes, events, _] =
        &answers[..]
    else {
        return Err(Error::invalid("the number of answers is not that of the statements"));
    };
    let execution = execution.first().ok_or_else(|| Error::not_found("execution", run))?;
    Ok(Workflow {
        execution: ExecutionRow::read(execution)?,
        current: current.first().map(CurrentExecutionRow::read).transpose()?,
        activity_infos: execution_map::read::<ActivityInfos>(activities)?,
        timer_infos: execution_map::read::<TimerInfos>(timers)?,
        child_execution_infos: execution_map::read::<ChildExecutionInfos>(children)?,
        request_cancel_infos: execution_map::read::<RequestCancelInfos>(cancels)?,
        signal_infos: execution_map::read::<SignalInfos>(signals)?,
        signals_requested: execution_map::read::<SignalsRequested>(requested)?,
        chasm_nodes: execution_map::read::<ChasmNodes>(nodes)?,
        buffered_events: buffered_event::read(events)?,
    })
}
