//! Repeated work writes the same values, for every type and all settings of the session.

use tokio_postgres::{Client, Error};

use super::{OC000, ask, cluster};
use crate::harness::{connect, told};

/// Both transactions need this row, so each makes the other release its locks.
const MARK: &str = "UPDATE marker SET id = 1";

const TABLE: &str =
    "CREATE TABLE v (id int PRIMARY KEY, f4 float4, f8 float8, tz timestamptz, ts timestamp, tt timetz,
    d date, iv interval, n numeric(60,30), b bytea, t text, c char(5), j json, jb jsonb, u uuid, o bool)";

/// Values that text could round, shift, trim or confuse.
const ROWS: &[&str] = &[
    "'0.1', '0.1', '2026-01-01 00:00:00.123456Z', '2026-01-01 00:00:00.000001', '12:00:00.5+05:30', '0044-03-15 BC',
     '1 year -2 mons 3 days -04:05:06.789', '123456789012345678901234567890.0987654321', '\\x00', '', 'ab', '{\"b\":1, \"a\" : 2}',
     '{\"b\":1, \"a\" : 2}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', true",
    "'1e-45', '4.9406564584124654e-324', '1883-11-18 12:03:57Z', 'infinity', '00:00+14', 'infinity', '-1 mons +30 days',
     'NaN', '', NULL, '', 'null', 'null', NULL, false",
    "'3.4028235e38', '1.7976931348623157e308', '-infinity', '-infinity', '23:59:59.999999-12', '9999-12-31', '0',
     '0.000000000000000000000000000001', '\\x5c5c27220a0d00ff', E'\\\\\\\\ \\' \" ( ) , { } \\n \\r \\t', '  x', '\" \\\\\"', '[\"\\\\u0001\", \"\\\\\\\\\"]',
     '00000000-0000-0000-0000-000000000000', NULL",
    "'NaN', 'NaN', '2026-03-29 01:30:00+01', '2026-03-29 02:30:00', '24:00:00+00', '2000-02-29', '178000000 years', '-0.00', NULL,
     E'\\u00e9\\u4e2d\\U0001F600', E'\\u00e9', '1e400', '1e400', NULL, NULL",
    "'-0', '-0', '2026-10-25 01:30:00+00', '1582-10-10', '00:00-00', '1582-10-10', '-178000000 years', '1e29', '\\xdeadbeef', 'NULL',
     'NULL', '\"NULL\"', '{}', NULL, NULL",
    "'16777217', '9007199254740993', '0001-01-01 00:00:00Z', '0001-01-01 BC', NULL, NULL, '1 day -1 mons', '1.10', NULL, NULL, NULL, NULL, NULL, NULL, NULL",
];

/// Settings that change the formats of values.
const SETTINGS: &[&str] = &[
    "SET TimeZone = 'UTC'",
    "SET TimeZone = 'America/New_York'; SET DateStyle = 'SQL, DMY'",
    "SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'SQL, MDY'",
    "SET TimeZone = 'Asia/Kolkata'; SET IntervalStyle = 'sql_standard'",
    "SET TimeZone = 'Europe/Amsterdam'; SET extra_float_digits = 0; SET DateStyle = 'German'",
    "SET TimeZone = 'Pacific/Apia'; SET extra_float_digits = -15; SET bytea_output = 'escape'; SET IntervalStyle = 'iso_8601'",
    "SET TimeZone = '<+0330>-03:30'; SET DateStyle = 'Postgres, MDY'; SET IntervalStyle = 'postgres_verbose'",
];

/// The exact values, in binary, with what text would hide.
const EXACTLY: &str = "SELECT id, encode(float4send(f4), 'hex'), encode(float8send(f8), 'hex'), encode(timestamptz_send(tz), 'hex'),
    encode(timestamp_send(ts), 'hex'), encode(timetz_send(tt), 'hex'), encode(date_send(d), 'hex'), encode(interval_send(iv), 'hex'),
    encode(numeric_send(n), 'hex'), encode(b, 'hex'), encode(convert_to(t, 'UTF8'), 'hex'), octet_length(c), j::text, jb::text, u, o
    FROM v ORDER BY id";

#[tokio::test]
async fn a_replay_writes_the_same_values() {
    let cluster = cluster();
    let (client, other) = (connect(&cluster).await, connect(&cluster).await);
    client.batch_execute(TABLE).await.unwrap();
    client.batch_execute("CREATE TABLE marker (id int PRIMARY KEY)").await.unwrap();
    client.batch_execute("INSERT INTO marker VALUES (1)").await.unwrap();
    drop(other.batch_execute("SELECT 1").await);
    let mut report = String::new();
    for settings in SETTINGS {
        client.batch_execute("RESET ALL").await.unwrap();
        for set in settings.split("; ") {
            client.batch_execute(set).await.unwrap_or_else(|error| panic!("{set}: {error:?}"));
        }
        if let Err(difference) = written_again(&client, &other).await {
            report += &format!("with {settings}: {difference}\n");
        }
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    assert!(report.is_empty(), "{report}");
}

/// Writes all rows, is forced to repeat that several times, and commits.
async fn written_again(client: &Client, other: &Client) -> Result<(), String> {
    let failed = |what: &'static str| move |error: Error| format!("{what}: {}", told(&error).1);
    client.batch_execute("BEGIN; DELETE FROM v").await.map_err(failed("delete"))?;
    for (id, row) in ROWS.iter().enumerate() {
        client
            .batch_execute(&format!("INSERT INTO v VALUES ({id}, {row})"))
            .await
            .map_err(failed("insert"))?;
    }
    // Update a row too, so that values also come from an update.
    client.batch_execute("INSERT INTO v (id) VALUES (99)").await.map_err(failed("insert"))?;
    let columns = "f4, f8, tz, ts, tt, d, iv, n, b, t, c, j, jb, u, o";
    let update = format!("UPDATE v SET ({columns}) = (SELECT {columns} FROM v WHERE id = 0) WHERE id = 99");
    client.batch_execute(&update).await.map_err(failed("update"))?;
    let written = ask(client, EXACTLY).await.map_err(failed("read"))?;
    assert_eq!(written.len(), ROWS.len() + 2);
    for _ in 0..2 {
        client.batch_execute(MARK).await.map_err(failed("mark"))?;
        other.batch_execute(&format!("BEGIN; {MARK}; ROLLBACK")).await.map_err(failed("push"))?;
        same(&written, &ask(client, EXACTLY).await.map_err(failed("read again"))?)?;
    }
    client.batch_execute("COMMIT").await.map_err(failed("commit"))?;
    same(&written, &ask(other, EXACTLY).await.map_err(failed("read by another"))?)?;

    // A transaction that has lost reads the same from its copies.
    client.batch_execute("BEGIN; SELECT 1").await.map_err(failed("begin"))?;
    other.batch_execute(MARK).await.map_err(failed("overtake"))?;
    client.batch_execute("UPDATE v SET id = id").await.map_err(failed("update of all"))?;
    client.batch_execute(MARK).await.map_err(failed("lose"))?;
    same(&written, &ask(client, EXACTLY).await.map_err(failed("read, lost"))?)?;
    let lost = client.batch_execute("COMMIT").await.err().map(|error| told(&error).1);
    if lost.as_deref() == Some(OC000) { Ok(()) } else { Err(format!("it should have lost: {lost:?}")) }
}

fn same(expected: &[String], got: &[String]) -> Result<(), String> {
    let differs = expected.iter().zip(got).find(|(expected, got)| expected != got);
    differs.map_or(Ok(()), |(expected, got)| Err(format!("\n  written {expected}\n  found   {got}")))
}
