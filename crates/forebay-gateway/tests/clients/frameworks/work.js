// What an application does with its ORM, the same for each of them: rows, relations, a transaction that is run again after a conflict, one
// that is rolled back, many statements at once from the pool. Each ORM says how, in its own terms.

import { randomUUID } from "node:crypto";

import { laps, pause, row, setting } from "./lap.js";

// A run of its own makes the tables. What it did is there in the others.
export async function migrate(work) {
  if (process.env.MIGRATE !== "1") return;
  await work();
  process.exit(0);
}

// The SQLSTATE of an error, wherever the ORM keeps it.
export function sqlstate(error) {
  for (let depth = 0; error && depth < 5; depth += 1) {
    const code = error.code ?? error.originalCode;
    if (/^[0-9A-Z]{5}$/.test(code ?? "") && !/^P\d{4}$/.test(code)) return code;
    error = error.original ?? error.parent ?? error.driverError ?? error.cause;
  }
  return undefined;
}

// Runs a transaction again if it met a conflict.
export async function again(work) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (sqlstate(error) !== "40001" || attempt === 9) throw error;
      await pause();
    }
  }
}

/* An ORM gives:
   insert(id, path)         a visit, with RETURNING; the path that came back
   find(id)                 its path, or null
   rename(id, path)         how many rows were changed
   count(prefix)            how many paths begin with this
   insertMany(visits)       a statement for all, of [id, path]
   remove(prefix)
   add(id)                  reads visits of this id and writes it back with one more, in a transaction: the path is a number
   fail(id, path)           inserts, fails with a duplicate key, and is rolled back; throws
   name()                   SHOW application_name, on any connection of the pool */
export async function judge(name, orm) {
  const round = async (_, number, round) => {
    const [id, prefix] = [randomUUID(), `${name}-${number}-${round}-`];
    row("inserted", await orm.insert(id, `${prefix}0`), `${prefix}0`);
    await pause();
    row("found", await orm.find(id), `${prefix}0`);
    row("renamed", await orm.rename(id, `${prefix}a`), 1);
    row("found again", await orm.find(id), `${prefix}a`);
    await pause();
    await orm.insertMany(Array.from({ length: 20 }, (_, n) => [randomUUID(), `${prefix}${n}`]));
    row("counted", await orm.count(prefix), 21);

    // Three at once from the pool: two of them meet a conflict, and are run again.
    const counter = randomUUID();
    await orm.insert(counter, "0");
    await Promise.all([1, 2, 3].map(() => again(() => orm.add(counter))));
    row("added", await orm.find(counter), "3");

    let code = "none";
    try {
      await orm.fail(id, `${prefix}never`);
    } catch (error) {
      code = sqlstate(error) ?? String(error);
    }
    row("a duplicate key", code, "23505");
    row("rolled back", await orm.count(`${prefix}never`), 0);
    setting("application_name", await orm.name(), name);
    await orm.remove(prefix);
    await orm.rename(counter, `${prefix}done`);
    await orm.remove(prefix);
    row("removed", await orm.count(prefix), 0);
  };
  // A connection that was opened before the tables were made fails once, also outside of a transaction.
  const unlessSchemaChanged = (error) => {
    if (sqlstate(error) !== "40001" || !/OC001/.test(`${error.message} ${error.cause?.message} ${error.meta?.message}`)) throw error;
  };
  await laps(async () => null, (...arguments_) => round(...arguments_).catch(unlessSchemaChanged));
}
