// What the second migration changes: see the test "a second migration".
export * from "./schema.mjs";
import { index, pgTable, text, uuid } from "drizzle-orm/pg-core";
import { customers } from "./schema.mjs";

export const notes = pgTable("notes", {
  id: uuid().primaryKey().defaultRandom(),
  customer: uuid().references(() => customers.id),
  body: text().notNull(),
}, (table) => [index("notes_by_customer").on(table.customer)]);
