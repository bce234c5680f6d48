// Drizzle on dsql-local: migrations from drizzle-kit, made fit by AWS's dsql-lint, and queries through AWS's connector.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import dns from "node:dns";
import fs from "node:fs";
import { after, before, test } from "node:test";

import { AuroraDSQLPool } from "@aws/aurora-dsql-node-postgres-connector";
import { and, avg, count, desc, eq, gte, inArray, sql, sum } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { migrate } from "drizzle-orm/node-postgres/migrator";

import { customers, lines, orders } from "./schema.mjs";
import { notes } from "./second.mjs";

const { CLUSTER_ENDPOINT, PGHOSTADDR, DSQL_LINT } = process.env;

// node-postgres does not read PGHOSTADDR, so the resolver gives the answer.
const lookup = dns.lookup;
dns.lookup = (name, options, done) => lookup(name === CLUSTER_ENDPOINT ? PGHOSTADDR : name, options, done);

let pool;
let db;

before(() => {
  // The connector verifies the server with the authorities of Node: NODE_EXTRA_CA_CERTS.
  pool = new AuroraDSQLPool({ host: CLUSTER_ENDPOINT, user: "admin", max: 4 });
  db = drizzle(pool);
});
after(() => pool.end());

// Writes the migration that leads to a schema, and returns its statements as dsql-lint repairs them.
function generate(name, schema) {
  const kit = ["node_modules/drizzle-kit/bin.cjs", "generate", "--dialect", "postgresql", "--schema", schema, "--out", "migrations"];
  execFileSync(process.execPath, [...kit, "--name", name], { stdio: "inherit" });
  const file = fs.readdirSync("migrations").find((entry) => entry.endsWith(`_${name}.sql`));
  // dsql-lint cannot parse the name of an identity column's sequence.
  fs.writeFileSync(`migrations/${file}`, fs.readFileSync(`migrations/${file}`, "utf8").replace(/sequence name "\w+" /g, ""));
  const repaired = `migrations/${name}.repaired.sql`;
  const lint = spawnSync(DSQL_LINT, ["--fix", "-o", repaired, `migrations/${file}`], { encoding: "utf8" });
  // 0 and 3 say that everything is repaired; 3 comes with warnings.
  assert.ok([0, 3].includes(lint.status), `dsql-lint: ${lint.status} ${lint.stdout} ${lint.stderr}`);
  const text = fs.readFileSync(repaired, "utf8").replace(/^--.*$/gm, "");
  return text.split(";").map((statement) => statement.trim()).filter((statement) => statement && !/^(BEGIN|COMMIT)$/i.test(statement));
}

// Runs one statement as one transaction, as the service demands for DDL, and waits for its job if it starts one.
async function apply(statement) {
  console.log(statement);
  const result = await db.execute(sql.raw(statement));
  if (result.rows[0]?.job_id) {
    await db.execute(sql.raw(`CALL sys.wait_for_job('${result.rows[0].job_id}')`));
  }
  // dsql-lint makes late foreign keys NOT VALID, and leaves it to the user to validate them.
  const late = /^ALTER TABLE (\S+) ADD CONSTRAINT (\S+) .* NOT VALID$/.exec(statement);
  if (late) {
    await apply(`ALTER TABLE ASYNC ${late[1]} VALIDATE CONSTRAINT ${late[2]}`);
  }
}

async function applyAll(statements) {
  for (const statement of statements) {
    await apply(statement);
  }
}

test("drizzle's own migrator is refused, because it creates a SERIAL column", async () => {
  fs.mkdirSync("empty/meta", { recursive: true });
  fs.writeFileSync("empty/meta/_journal.json", JSON.stringify({ version: "7", dialect: "postgresql", entries: [] }));
  await assert.rejects(migrate(db, { migrationsFolder: "empty" }), (error) => /serial/i.test(String(error.cause ?? error)));
});

test("the first migration", async () => {
  await applyAll(generate("first", "./schema.mjs"));
  const found = await db.execute(sql`SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1`);
  assert.deepEqual(found.rows.map((row) => row.table_name), ["customers", "lines", "orders"]);
});

test("every index and foreign key is valid when its job has ended", async () => {
  const found = await db.execute(sql`SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid
    UNION ALL SELECT conname FROM pg_constraint WHERE NOT convalidated`);
  assert.deepEqual(found.rows, []);
});

test("insert and returning", async () => {
  const [ada] = await db.insert(customers).values({ email: "ada@example.com", name: "Ada", settings: { theme: "dark", tags: ["a", "b"] } }).returning();
  assert.match(ada.id, /^[0-9a-f-]{36}$/);
  assert.deepEqual(ada.settings, { theme: "dark", tags: ["a", "b"] });
  assert.ok(Math.abs(ada.created - Date.now()) < 60_000);
  await db.insert(customers).values([{ email: "bob@example.com", name: "Bob" }, { email: "cy@example.com", name: "Cy", active: false }]);
  assert.equal(await db.$count(customers), 3);
});

test("a transaction with an identity key", async () => {
  const made = await db.transaction(async (tx) => {
    const [ada] = await tx.select().from(customers).where(eq(customers.name, "Ada"));
    const rows = await tx.insert(orders).values([{ customer: ada.id, total: "10.50" }, { customer: ada.id, total: "4.25" }]).returning({ id: orders.id });
    await tx.insert(lines).values(rows.flatMap(({ id }) => [1, 2].map((number) => ({ order: id, number, article: `a${number}`, pieces: number }))));
    return rows;
  });
  assert.notEqual(made[0].id, made[1].id);
  assert.equal(await db.$count(lines), 4);
});

test("a rollback leaves nothing behind", async () => {
  await assert.rejects(db.transaction(async (tx) => {
    await tx.update(customers).set({ name: "Nobody" });
    tx.rollback();
  }));
  assert.equal(await db.$count(customers, eq(customers.name, "Nobody")), 0);
});

test("joins, groups and subqueries", async () => {
  const totals = await db.select({ name: customers.name, orders: count(orders.id), total: sum(orders.total), mean: avg(orders.total) })
    .from(customers).leftJoin(orders, eq(orders.customer, customers.id))
    .groupBy(customers.id, customers.name).orderBy(desc(count(orders.id)), customers.name);
  assert.deepEqual(totals.map((row) => [row.name, row.orders]), [["Ada", 2], ["Bob", 0], ["Cy", 0]]);
  assert.equal(totals[0].total, "14.75");
  const large = db.select({ id: orders.customer }).from(orders).where(gte(orders.total, "10"));
  const names = await db.select({ name: customers.name }).from(customers).where(and(customers.active, inArray(customers.id, large)));
  assert.deepEqual(names, [{ name: "Ada" }]);
});

test("upsert, update and JSON operators", async () => {
  await db.insert(customers).values({ email: "bob@example.com", name: "Robert" })
    .onConflictDoUpdate({ target: customers.email, set: { name: sql`excluded.name` } });
  const dark = await db.select({ name: customers.name }).from(customers).where(sql`${customers.settings} ->> 'theme' = 'dark'`);
  assert.deepEqual(dark, [{ name: "Ada" }]);
  const changed = await db.update(orders).set({ status: "paid" }).where(gte(orders.total, "5")).returning({ status: orders.status });
  assert.deepEqual(changed, [{ status: "paid" }]);
  assert.equal(await db.$count(customers, eq(customers.name, "Robert")), 1);
});

test("constraints hold", async () => {
  const fails = (promise, code) => assert.rejects(promise, (error) => (error.cause ?? error).code === code);
  await fails(db.insert(customers).values({ email: "ada@example.com", name: "Twin" }), "23505");
  await fails(db.insert(orders).values({ customer: "00000000-0000-0000-0000-000000000000", total: "1" }), "23503");
  const [ada] = await db.select().from(customers).where(eq(customers.name, "Ada"));
  await fails(db.insert(orders).values({ customer: ada.id, total: "-1" }), "23514");
});

test("a conflict fails at the commit with 40001", async () => {
  const change = (name) => (tx) => tx.update(customers).set({ name }).where(eq(customers.email, "cy@example.com"));
  await assert.rejects(db.transaction(async (first) => {
    await change("First")(first);
    await db.transaction(change("Second"));
  }), (error) => (error.cause ?? error).code === "40001");
  assert.equal(await db.$count(customers, eq(customers.name, "Second")), 1);
});

test("a second migration", async () => {
  await applyAll(generate("second", "./second.mjs"));
  const [ada] = await db.select().from(customers).where(eq(customers.name, "Ada"));
  await db.insert(notes).values({ customer: ada.id, body: "hello" });
  const found = await db.select({ name: customers.name, body: notes.body }).from(notes).innerJoin(customers, eq(notes.customer, customers.id));
  assert.deepEqual(found, [{ name: "Ada", body: "hello" }]);
});

test("delete with a cascade", async () => {
  await db.delete(notes);
  await db.delete(customers).where(eq(customers.name, "Ada"));
  assert.deepEqual([await db.$count(orders), await db.$count(lines)], [0, 0]);
});
