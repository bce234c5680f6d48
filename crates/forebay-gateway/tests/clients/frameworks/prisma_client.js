// Prisma with its driver adapter: the generated client, both kinds of transactions.

import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client";

import { CONNECTIONS } from "./lap.js";
import { judge, migrate } from "./work.js";

const prisma = new PrismaClient({
  adapter: new PrismaPg({ max: CONNECTIONS, application_name: "prisma" }),
  transactionOptions: { maxWait: 30000, timeout: 30000 },
});
// Its own migrations need a program that is downloaded.
await migrate(() => prisma.$executeRaw`CREATE TABLE prisma_visits (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), path text)`);

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
