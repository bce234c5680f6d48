// node-postgres: named statements, its pool, cursors, COPY streams, queries that are sent before others are answered.

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import pg from "pg";
import Cursor from "pg-cursor";
import copy from "pg-copy-streams";
import { CONNECTIONS, COPIES, UNDOES_SET, laps, pause, refused, row, setting } from "./lap.js";

const pool = new pg.Pool({ max: Math.max(2, CONNECTIONS / 2), application_name: "pooled" });
pool.on("error", () => {});

async function openOne(number) {
  const connection = new pg.Client({ application_name: `pg-${number}` });
  connection.on("error", () => {});
  await connection.connect();
  return { connection, name: `pg-${number}`, zone: "UTC" };
}

const one = async (connection, text, values, name) =>
  Object.values((await connection.query({ text, values, name })).rows[0])[0];

async function settings(client) {
  setting("application_name", await one(client.connection, "SHOW application_name"), client.name);
  setting("TimeZone", await one(client.connection, "SHOW TimeZone"), client.zone);
}

async function statements(client, number, round) {
  const { connection } = client;
  for (let n = 0; n < 6; n += 1) {
    row("named", await one(connection, `SELECT $1::int + ${n} AS sum`, [round], `add-${n}`), round + n);
  }
  row("unnamed", await one(connection, "SELECT $1::text", [`${number}/${round}`]), `${number}/${round}`);
  // All are sent at once: the client keeps them, and sends one after the other without a pause.
  const all = await Promise.all([1, 2, 3, 4].map((n) => one(connection, "SELECT $1::int * 2 AS twice", [n], "twice")));
  row("at once", all, [2, 4, 6, 8]);
  const several = await connection.query("SELECT 1 AS a; SELECT 2 AS b");
  row("simple", several.map((result) => result.rows[0]), [{ a: 1 }, { b: 2 }]);
  await refused("a bad batch", "42601", () => connection.query("SELECT 1; SELEKT 2"));
  await refused("a bad statement", "22012", () => one(connection, "SELECT $1::int / 0", [round], "divide"));
}

async function transaction(client, number, round) {
  const { connection } = client;
  const key = randomUUID();
  await connection.query("BEGIN");
  if (UNDOES_SET) await connection.query("SET LOCAL TimeZone = 'Asia/Tokyo'");
  await connection.query("INSERT INTO judged (id, client, n) VALUES ($1, $2, $3)", [key, `pg-${number}`, round]);
  await pause();
  const cursor = connection.query(new Cursor("SELECT n FROM generate_series(1, 25) AS n"));
  const got = [];
  for (let rows = await cursor.read(10); rows.length > 0; rows = await cursor.read(10)) got.push(...rows.map((r) => r.n));
  await cursor.close();
  row("cursor", got, Array.from({ length: 25 }, (_, n) => n + 1));
  await connection.query("COMMIT");
  row("committed", await one(connection, "SELECT n FROM judged WHERE id = $1", [key], "look"), round);
  await connection.query("BEGIN");
  if (UNDOES_SET) await connection.query("SET application_name = 'undone'");
  await connection.query("UPDATE judged SET n = -1 WHERE id = $1", [key]);
  await refused("an error", "22012", () => one(connection, "SELECT $1::int / 0", [round], "divide"));
  await refused("a failed transaction", "25P02", () => one(connection, "SELECT 1"));
  await connection.query("ROLLBACK");
  row("rolled back", await one(connection, "SELECT n FROM judged WHERE id = $1", [key], "look"), round);
  await connection.query("DELETE FROM judged WHERE id = $1", [key]);
}

async function large(client, number, round) {
  const { connection } = client;
  row("large row", (await one(connection, "SELECT repeat('x', 300000)", [], "large")).length, 300000);
  row("large parameter", await one(connection, "SELECT length($1::text)", ["y".repeat(300000)]), 300000);
  const many = await connection.query("SELECT n FROM generate_series(1, 3000) AS n");
  row("many rows", many.rows.reduce((sum, { n }) => sum + n, 0), 4501500);
}

async function copied(client, number, round) {
  const { connection } = client;
  const name = `pg-copy-${number}-${round}`;
  const into = connection.query(copy.from("COPY judged (id, client, n) FROM STDIN"));
  for (let n = 0; n < 20; n += 1) into.write(`${randomUUID()}\t${name}\t${n}\n`);
  into.end();
  await once(into, "finish");
  let text = "";
  for await (const chunk of connection.query(copy.to(`COPY (SELECT n FROM judged WHERE client = '${name}' ORDER BY n) TO STDOUT`))) {
    text += chunk;
  }
  row("copied", text, Array.from({ length: 20 }, (_, n) => `${n}\n`).join(""));
  await connection.query("DELETE FROM judged WHERE client = $1", [name]);
}

async function changeSettings(client, number, round) {
  client.name = `pg-${number}-${round}`;
  client.zone = ["UTC", "Europe/Berlin", "Asia/Tokyo"][round % 3];
  await client.connection.query(`SET application_name = '${client.name}'`);
  await client.connection.query(`SET TimeZone TO '${client.zone}'`);
}

// Nothing resets what this pool lends: whoever sets something must reset it.
async function pooled(round) {
  const lent = await pool.connect();
  setting("pool", await one(lent, "SHOW application_name"), "pooled");
  await lent.query(`SET application_name = 'lent-${round}'`);
  await pause();
  row("pool", await one(lent, "SELECT $1::int", [round], "same"), round);
  setting("pool", await one(lent, "SHOW application_name"), `lent-${round}`);
  await lent.query("RESET application_name");
  lent.release();
}

await laps(openOne, async (client, number, round) => {
  await settings(client);
  await pause();
  await statements(client, number, round);
  await changeSettings(client, number, round);
  await pause();
  await transaction(client, number, round);
  await pause();
  await settings(client);
  await pooled(round);
  if (round % 3 === 0) await large(client, number, round);
  if (round % 3 === 1 && COPIES) await copied(client, number, round);
  if (round % 5 === 0) {
    await client.connection.query("RESET ALL");
    client.name = `pg-${number}`;
    client.zone = "UTC";
  }
  await settings(client);
});
