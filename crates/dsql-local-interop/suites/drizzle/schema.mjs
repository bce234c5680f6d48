// The tables of a small shop, with what Drizzle users commonly write: keys of both kinds, foreign keys, indexes, JSON and times.
import { sql } from "drizzle-orm";
import {
  bigint, boolean, check, index, integer, jsonb, numeric, pgTable, primaryKey, text, timestamp, uniqueIndex, uuid, varchar,
} from "drizzle-orm/pg-core";

export const customers = pgTable("customers", {
  id: uuid().primaryKey().defaultRandom(),
  email: varchar({ length: 255 }).notNull().unique(),
  name: text().notNull(),
  active: boolean().notNull().default(true),
  settings: jsonb(),
  created: timestamp({ withTimezone: true }).notNull().defaultNow(),
});

export const orders = pgTable("orders", {
  id: bigint({ mode: "number" }).primaryKey().generatedByDefaultAsIdentity({ cache: 65536 }),
  customer: uuid().notNull().references(() => customers.id, { onDelete: "cascade" }),
  status: varchar({ length: 20 }).notNull().default("open"),
  total: numeric({ precision: 12, scale: 2 }).notNull(),
}, (table) => [
  index("orders_by_customer").on(table.customer),
  uniqueIndex("orders_by_customer_and_id").on(table.customer, table.id),
  check("orders_total", sql`${table.total} >= 0`),
]);

export const lines = pgTable("lines", {
  order: bigint({ mode: "number" }).notNull().references(() => orders.id, { onDelete: "cascade" }),
  number: integer().notNull(),
  article: text().notNull(),
  pieces: integer().notNull(),
}, (table) => [primaryKey({ columns: [table.order, table.number] })]);
