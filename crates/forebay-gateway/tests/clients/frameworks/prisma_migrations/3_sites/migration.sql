-- The script is one message. Each change has a transaction of its own.
BEGIN;
CREATE TABLE "prisma_sites" (
    "id" UUID NOT NULL DEFAULT gen_random_uuid(),
    "name" TEXT,
    CONSTRAINT "prisma_sites_pkey" PRIMARY KEY ("id")
);
COMMIT;

BEGIN;
CREATE INDEX ASYNC "prisma_sites_name" ON "prisma_sites" ("name");
COMMIT;
