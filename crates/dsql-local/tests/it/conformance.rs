//! Runs the conformance table over the wire. `conformance/README.md` describes the rows.

mod check;
mod client;
mod crowd;
mod plain;
mod row;
mod run;
mod server;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use dsql_local::Rules;
use row::Row;
use run::World;

/// The workers, each with its own PostgreSQL. There are more than processors, because rows that must fail
/// wait for locks.
const WORKERS: &[(Rules, usize)] = &[(Rules::Today, 3), (Rules::Spec, 2)];

/// Every case that was recorded from a real cluster.
const RECORDED: &str = "
    truncate create_extension create_trigger create_database temporary_table unlogged_table serial_column
    materialized_view create_table_as enum_type composite_type range_type domain_type tablespace foreign_table vacuum
    listen notify unlisten alter_system create_function create_function_plpgsql savepoint two_ddl_one_txn ddl_then_dml
    row_cap commit rollback read_only rejection_aborts_txn aborted_txn_prefers_25P02
    aborted_txn_recovers_after_rollback rejection_outside_txn_does_not_abort row_cap_boundary row_cap_discards_rows
    row_cap_implicit rollback_to_savepoint env_server_version env_version_function env_server_version_setting
    env_server_version_num env_show_server_version_num env_current_database env_current_schema env_timezone
    env_client_encoding env_lc_collate multi_two_selects multi_two_ddl multi_ddl_then_dml multi_ddl_then_async_index
    multi_async_index_in_txn multi_dml_in_txn occ_write_write occ_for_update_vs_write occ_for_key_share_vs_delete
    occ_fk_delete_insert occ_fk_nonkey_update occ_disjoint_writes";

#[test]
fn the_table_is_well_formed_and_holds_all_that_was_recorded() {
    let rows = row::table();
    let problems: Vec<String> = rows.iter().filter_map(|row| row.problem()).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(rows.len() >= 150, "only {} rows", rows.len());
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "a name is there twice");

    let sources: Vec<&str> = rows.iter().filter_map(|row| row.source.strip_prefix("observed: ")).collect();
    let is_in_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let words: BTreeSet<&str> =
        sources.iter().flat_map(|source| source.split(|letter| !is_in_name(letter))).collect();
    let missing: Vec<&str> = RECORDED.split_whitespace().filter(|case| !words.contains(case)).collect();
    assert!(missing.is_empty(), "recorded, and not in the table: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_holds() {
    let mut rows = row::table();
    // Run only a few rows by name.
    if let Ok(wanted) = std::env::var("ROWS") {
        rows.retain(|row| wanted.split(',').any(|name| row.name == name));
    }
    let mut workers = Vec::new();
    for (rules, count) in WORKERS {
        let fitting: Vec<&Row> = rows.iter().filter(|row| row.rules.contains(rules)).collect();
        for worker in 0..*count {
            let share: Vec<Row> = fitting.iter().skip(worker).step_by(*count).copied().cloned().collect();
            workers.push(tokio::spawn(async move {
                let mut world = World::start(*rules).await;
                let mut failed = Vec::new();
                for row in share {
                    if let Err(failure) = world.run(&row).await {
                        failed.push((*rules, row, failure));
                    }
                }
                failed
            }));
        }
    }
    let mut failed = Vec::new();
    for worker in workers {
        failed.extend(worker.await.unwrap());
    }
    let mut failures = BTreeMap::new();
    for (rules, row, failure) in failed {
        let failed = match failure.contains(run::LATE) {
            // Again without the other workers, whose load may have delayed the answer.
            true => World::start(rules).await.run(&row).await,
            false => Err(failure),
        };
        if let Err(failure) = failed {
            failures.insert(row.name.clone(), format!("{rules:?}, {failure}"));
        }
    }

    let mut report = String::new();
    for (name, failure) in &failures {
        writeln!(report, "{name}: {failure}").unwrap();
    }
    assert!(report.is_empty(), "{} of {} rows do not hold:\n{report}", failures.len(), rows.len());
}
