// Drizzle on node-postgres: prepared and ad-hoc queries, transactions.

import { eq, like, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { pgTable, text, uuid } from "drizzle-orm/pg-core";
import { Pool } from "pg";

import { CONNECTIONS } from "./lap.js";
import { judge, migrate } from "./work.js";

const pool = new Pool({ max: CONNECTIONS, application_name: "drizzle" });
pool.on("error", () => {});
const db = drizzle(pool);
const visits = pgTable("drizzle_visits", { id: uuid().primaryKey().defaultRandom(), path: text() });
// Its own migrations run in a transaction, and want a serial key.
await migrate(() => db.execute(sql`CREATE TABLE drizzle_visits (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), path text)`));
const find = db.select().from(visits).where(eq(visits.id, sql.placeholder("id"))).prepare("find");

await judge("drizzle", {
  insert: async (id, path) => (await db.insert(visits).values({ id, path }).returning())[0].path,
  // A named statement on every connection of the pool.
  find: async (id) => (await find.execute({ id }))[0]?.path ?? null,
  rename: async (id, path) => (await db.update(visits).set({ path }).where(eq(visits.id, id))).rowCount,
  count: (prefix) => db.$count(visits, like(visits.path, `${prefix}%`)),
  insertMany: (rows) => db.insert(visits).values(rows.map(([id, path]) => ({ id, path }))),
  remove: (prefix) => db.delete(visits).where(like(visits.path, `${prefix}%`)),
  add: (id) => db.transaction(async (tx) => {
    const [{ path }] = await tx.select().from(visits).where(eq(visits.id, id));
    await tx.update(visits).set({ path: String(Number(path) + 1) }).where(eq(visits.id, id));
  }),
  fail: (id, path) => db.transaction(async (tx) => {
    await tx.insert(visits).values({ path });
    await tx.insert(visits).values({ id, path });
  }),
  name: async () => (await db.execute(sql`SHOW application_name`)).rows[0].application_name,
});
