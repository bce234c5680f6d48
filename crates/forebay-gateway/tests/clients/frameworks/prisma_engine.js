#!/usr/bin/env node
// Prisma's schema engine, which its command starts as a program and asks in lines of JSON. That program would have to be downloaded.
// This one is the same engine in WebAssembly, over node-postgres.

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

import { PrismaPg } from "@prisma/adapter-pg";
import { bindMigrationAwareSqlAdapterFactory } from "@prisma/driver-adapter-utils";
import * as engine from "@prisma/schema-engine-wasm/schema_engine_bg";

// The command reads what it shall show to people from here.
function fail(message, code) {
  console.error(JSON.stringify({ level: "ERROR", target: "schema_engine::logger", fields: { message, error_code: code } }));
}

// What the program does and the adapter does not.
class Postgres extends PrismaPg {
  async connect() {
    const adapter = await super.connect();
    const pool = adapter.underlyingDriver();
    // The whole script is one message.
    adapter.executeScript = async (script) => {
      await pool.query(script).catch((error) => adapter.onError(error));
    };
    const performIO = adapter.performIO.bind(adapter);
    adapter.performIO = async (query) => {
      // The lock can be left out.
      const locks = query.sql.includes("pg_advisory_lock") && process.env.PRISMA_SCHEMA_DISABLE_ADVISORY_LOCK;
      const result = locks ? { fields: [], rows: [] } : await performIO(query);
      // It reads the catalog, which has "char" and name.
      for (const field of result.fields) if (field.dataTypeID === 18 || field.dataTypeID === 19) field.dataTypeID = 25;
      return result;
    };
    return adapter;
  }
}

const given = (name) => process.argv.flatMap((value, at) => (process.argv[at - 1] === name ? [value] : []));
const { url } = JSON.parse(given("--datasource")[0]);
const postgres = new Postgres({ connectionString: url, max: 1 });

if (given("cli")[0] === "can-connect-to-database") {
  try {
    await (await postgres.connect()).executeScript("SELECT 1");
  } catch (error) {
    fail(error.message, "P1001");
    process.exit(1);
  }
  process.exit(0);
}

globalThis.PRISMA_WASM_PANIC_REGISTRY = { set_message: fail };
const code = await readFile(new URL("schema_engine_bg.wasm", import.meta.resolve("@prisma/schema-engine-wasm")));
const { instance } = await WebAssembly.instantiate(code, { "./schema_engine_bg.js": engine });
engine.__wbg_set_wasm(instance.exports);
instance.exports.__wbindgen_start();
const datamodels = await Promise.all(given("--datamodels").map(async (file) => [file, await readFile(file, "utf8")]));
const adapter = bindMigrationAwareSqlAdapterFactory(postgres);
const schemaEngine = await engine.SchemaEngine.new({ datamodels: datamodels.length ? datamodels : undefined }, () => {}, adapter);

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  const answer = { jsonrpc: "2.0", id };
  try {
    answer.result = (await schemaEngine[method === "getDatabaseVersion" ? "version" : method](params)) ?? null;
  } catch (error) {
    answer.error = { code: 4466, message: error.message, data: { is_panic: false, message: error.message, error_code: error.code } };
  }
  console.log(JSON.stringify(answer));
}
process.exit(0);
