import { defineConfig } from "prisma/config";

export default defineConfig({
  schema: "schema.prisma",
  migrations: { path: "prisma_migrations" },
  datasource: { url: process.env.DATABASE_URL },
});
