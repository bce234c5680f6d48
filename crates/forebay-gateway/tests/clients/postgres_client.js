// postgres.js: statements that it names and pipelines, its pool, reserved connections, cursors, COPY.

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import postgres from "postgres";
import { COPIES, UNDOES_SET, laps, pause, refused, row, setting } from "./lap.js";

const options = {
  host: process.env.PGHOST,
  port: Number(process.env.PGPORT),
  user: process.env.PGUSER,
  password: process.env.PGPASSWORD,
  database: process.env.PGDATABASE,
  ssl: false,
  onnotice: () => {},
};
const shared = postgres({ ...options, max: 3, connection: { application_name: "shared" } });

// One connection each: what it sets stays.
async function openOne(number) {
  const pool = postgres({ ...options, max: 1, idle_timeout: 0, max_lifetime: null, connection: { application_name: `js-${number}` } });
  return { sql: pool, name: `js-${number}`, zone: "UTC" };
}

async function settings({ sql, name, zone }) {
  setting("application_name", (await sql`SHOW application_name`)[0].application_name, name);
  setting("TimeZone", (await sql`SHOW TimeZone`)[0].TimeZone, zone);
}

async function statements({ sql }, number, round) {
  // It prepares and sends them in one pipeline.
  const all = await Promise.all([0, 1, 2, 3, 4, 5].map((n) => sql`SELECT ${round}::int + ${n}::int AS sum`));
  row("pipeline", all.map(([first]) => first.sum), [0, 1, 2, 3, 4, 5].map((n) => round + n));
  // One of them fails: those before and behind it do not.
  const mixed = await Promise.allSettled([
    sql`SELECT ${round}::int + 1 AS n`,
    sql`SELECT ${round}::int / 0 AS n`,
    sql`SELECT ${round}::int + 2 AS n`,
    sql`SELEKT ${round}::int`,
    sql`SELECT ${round}::int + 3 AS n`,
  ]);
  const outcome = mixed.map(({ value, reason }) => value?.[0].n ?? reason.code);
  row("errors in a pipeline", outcome, [round + 1, "22012", round + 2, "42601", round + 3]);
  row("text", (await sql`SELECT ${`${number}/${round}`}::text AS t`)[0].t, `${number}/${round}`);
  const several = await sql`SELECT 1 AS a; SELECT 2 AS b`.simple();
  row("simple", several.map(([first]) => ({ ...first })), [{ a: 1 }, { b: 2 }]);
  row("unprepared", (await sql.unsafe("SELECT $1::int * 2 AS n", [round]))[0].n, round * 2);
}

async function transaction({ sql }, number, round) {
  const key = randomUUID();
  await sql.begin(async (sql) => {
    if (UNDOES_SET) await sql`SET LOCAL TimeZone = 'Asia/Tokyo'`;
    await sql`INSERT INTO judged (id, client, n) VALUES (${key}, ${`js-${number}`}, ${round})`;
    await pause();
    const got = [];
    await sql`SELECT n FROM generate_series(1, 25) AS n`.cursor(10, (rows) => got.push(...rows.map(({ n }) => n)));
    row("cursor", got, Array.from({ length: 25 }, (_, n) => n + 1));
  });
  row("committed", (await sql`SELECT n FROM judged WHERE id = ${key}`)[0].n, round);
  await refused("an error", "22012", () =>
    sql.begin(async (sql) => {
      if (UNDOES_SET) await sql`SET application_name = 'undone'`;
      await sql`UPDATE judged SET n = -1 WHERE id = ${key}`;
      await sql`SELECT ${round}::int / 0`;
    }),
  );
  row("rolled back", (await sql`SELECT n FROM judged WHERE id = ${key}`)[0].n, round);
  await sql`DELETE FROM judged WHERE id = ${key}`;
}

async function large({ sql }) {
  row("large row", (await sql`SELECT repeat('x', 300000) AS t`)[0].t.length, 300000);
  row("large parameter", (await sql`SELECT length(${"y".repeat(300000)}::text) AS n`)[0].n, 300000);
  row("many rows", (await sql`SELECT n FROM generate_series(1, 3000) AS n`).length, 3000);
}

async function copied({ sql }, number, round) {
  const name = `js-copy-${number}-${round}`;
  const into = await sql`COPY judged (id, client, n) FROM STDIN`.writable();
  for (let n = 0; n < 20; n += 1) into.write(`${randomUUID()}\t${name}\t${n}\n`);
  into.end();
  await once(into, "finish");
  let text = "";
  const query = `COPY (SELECT n FROM judged WHERE client = '${name}' ORDER BY n) TO STDOUT`;
  for await (const chunk of await sql.unsafe(query).readable()) text += chunk;
  row("copied", text, Array.from({ length: 20 }, (_, n) => `${n}\n`).join(""));
  await sql`DELETE FROM judged WHERE client = ${name}`;
}

async function reserved(round) {
  const sql = await shared.reserve();
  setting("reserved", (await sql`SHOW application_name`)[0].application_name, "shared");
  await sql.unsafe(`SET application_name = 'reserved-${round}'`);
  await pause();
  row("reserved", (await sql`SELECT ${round}::int AS n`)[0].n, round);
  setting("reserved", (await sql`SHOW application_name`)[0].application_name, `reserved-${round}`);
  await sql`RESET application_name`;
  sql.release();
}

await laps(openOne, async (client, number, round) => {
  await settings(client);
  await pause();
  await statements(client, number, round);
  client.name = `js-${number}-${round}`;
  client.zone = ["UTC", "Europe/Berlin", "Asia/Tokyo"][round % 3];
  await client.sql.unsafe(`SET application_name = '${client.name}'; SET TIME ZONE '${client.zone}'`);
  await pause();
  await transaction(client, number, round);
  await pause();
  await settings(client);
  await reserved(round);
  if (round % 3 === 0) await large(client);
  if (round % 3 === 1 && COPIES) await copied(client, number, round);
  if (round % 5 === 0) {
    await client.sql`RESET ALL`;
    client.name = `js-${number}`;
    client.zone = "UTC";
  }
  await settings(client);
});
