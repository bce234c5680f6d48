ALTER TABLE "prisma_visits" ADD COLUMN "stars" INTEGER;
