// Prisma with its driver adapter: the generated client, both kinds of transactions.

import { spawnSync } from "node:child_process";

import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client";

import { CONNECTIONS } from "./lap.js";
import { judge, migrate } from "./work.js";

const prisma = new PrismaClient({
  adapter: new PrismaPg({ max: CONNECTIONS, application_name: "prisma" }),
  transactionOptions: { maxWait: 30000, timeout: 30000 },
});

// Its own command, without what it would download.
function command(...arguments_) {
  const { PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD } = process.env;
  const env = {
    ...process.env,
    DATABASE_URL: `postgresql://${PGUSER}:${encodeURIComponent(PGPASSWORD)}@${PGHOST}:${PGPORT}/${PGDATABASE}`,
    CHECKPOINT_DISABLE: "1",
    PRISMA_SCHEMA_ENGINE_BINARY: new URL("prisma_engine.js", import.meta.url).pathname,
    PRISMA_SCHEMA_DISABLE_ADVISORY_LOCK: "1",
  };
  const cwd = new URL(".", import.meta.url).pathname;
  const { status, stdout, stderr } = spawnSync("node_modules/.bin/prisma", arguments_, { cwd, env, encoding: "utf8" });
  console.log(stdout, stderr);
  if (status !== 0) process.exit(1);
  return stdout;
}

await migrate(() => {
  // There are tables already: those of others.
  command("migrate", "resolve", "--applied", "0_existing");
  command("migrate", "deploy");
  if (!command("migrate", "status").includes("up to date")) process.exit(1);
  const found = command("db", "pull", "--print");
  if (!/model Site \{[^}]*@@index\(\[name\]/.test(found)) process.exit(1);
});

// Of its own codes, one stands for a duplicate key, another for a conflict.
const codes = { P2002: "23505", P2034: "40001" };
async function plain(work) {
  try {
    return await work;
  } catch (error) {
    const code = error.cause?.originalCode ?? codes[error.code];
    throw code ? Object.assign(new Error(error.message), { code }) : error;
  }
}

const beginning = (prefix) => ({ where: { path: { startsWith: prefix } } });
await judge("prisma", {
  insert: async (id, path) => (await prisma.visit.create({ data: { id, path } })).path,
  find: async (id) => (await prisma.visit.findUnique({ where: { id } }))?.path ?? null,
  rename: async (id, path) => (await prisma.visit.updateMany({ where: { id }, data: { path } })).count,
  count: (prefix) => prisma.visit.count(beginning(prefix)),
  insertMany: (rows) => prisma.visit.createMany({ data: rows.map(([id, path]) => ({ id, path })) }),
  remove: (prefix) => prisma.visit.deleteMany(beginning(prefix)),
  add: (id) => plain(prisma.$transaction(async (tx) => {
    const { path } = await tx.visit.findUnique({ where: { id } });
    await tx.visit.update({ where: { id }, data: { path: String(Number(path) + 1) } });
  })),
  fail: (id, path) => plain(prisma.$transaction([
    prisma.visit.create({ data: { path } }),
    prisma.visit.create({ data: { id, path } }),
  ])),
  name: async () => (await prisma.$queryRaw`SHOW application_name`)[0].application_name,
});
