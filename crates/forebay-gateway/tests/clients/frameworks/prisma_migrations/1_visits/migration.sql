CREATE TABLE "prisma_visits" (
    "id" UUID NOT NULL DEFAULT gen_random_uuid(),
    "path" TEXT,
    CONSTRAINT "prisma_visits_pkey" PRIMARY KEY ("id")
);
