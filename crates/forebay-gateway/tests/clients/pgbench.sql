\set a random(1, 1000000)
\set key random(100000000000, 999999999999)
SELECT :a + 1 AS next \gset
BEGIN;
INSERT INTO judged (id, client, n) VALUES (('00000000-0000-0000-0000-' || :key)::uuid, 'pgbench', :a);
SELECT n / (CASE WHEN n = :a THEN 1 ELSE 0 END) FROM judged WHERE id = ('00000000-0000-0000-0000-' || :key)::uuid;
COMMIT;
SELECT 1 / (CASE WHEN :next = :a + 1 THEN 1 ELSE 0 END);
DELETE FROM judged WHERE id = ('00000000-0000-0000-0000-' || :key)::uuid;
