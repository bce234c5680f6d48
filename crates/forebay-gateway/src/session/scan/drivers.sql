-- asyncpg: before and behind a look at types, and when a pool takes a connection back
SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new;
WITH RECURSIVE tree(oid, kind, depth) AS (
    SELECT t.oid, t.typtype, 0 FROM (SELECT * FROM pg_catalog.pg_type AS t INNER JOIN pg_namespace n ON (n.oid = t.typnamespace)) AS t
        WHERE t.oid = any($1::oid[])
    UNION ALL SELECT t.oid, t.typtype, tree.depth + 1 FROM pg_type t, tree WHERE (t.typelem IS NOT NULL AND tree.oid = t.oid)
) SELECT DISTINCT *, (CASE WHEN kind = 'c' THEN (SELECT array_agg(a.atttypid ORDER BY a.attnum) FROM pg_attribute a) ELSE NULL END) FROM tree;
SELECT set_config('jit', $1, false);
SELECT pg_advisory_unlock_all();
COPY "judged"("id", "client", "n") FROM STDIN (FORMAT binary);
COPY (SELECT n FROM judged WHERE client = 'a') TO STDOUT (FORMAT binary);
CLOSE ALL;
UNLISTEN *;
RESET ALL;
-- psycopg, SQLAlchemy
DEALLOCATE ALL;
SELECT typname AS name, oid::regtype::text, typdelim FROM pg_type t WHERE t.oid = to_regtype($1) ORDER BY t.oid;
SELECT coalesce(a.names, '{}') FROM pg_type t LEFT JOIN (SELECT array_agg(x.n) AS names FROM (SELECT 1 AS n) x GROUP BY n) a ON a.names IS NOT NULL;
select pg_catalog.version();
select current_schema();
show standard_conforming_strings;
show transaction isolation level;
SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relkind = ANY (ARRAY['r', 'p']) AND pg_catalog.pg_table_is_visible(c.oid);
SELECT unnest(i.indkey) AS n, generate_subscripts(i.indkey, 1) AS at FROM pg_catalog.pg_index i WHERE NOT i.indisprimary;
SELECT json_build_object('always', a.attidentity = 'a', 'start', pg_sequence.seqstart) FROM pg_catalog.pg_sequence, pg_attribute a;
-- Django
SELECT set_config('TimeZone', 'UTC', false);
SET CONSTRAINTS ALL IMMEDIATE;
SELECT array(SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, at) ORDER BY cols.at) FROM pg_constraint AS c;
SELECT array_agg(attname ORDER BY at) FROM pg_index i, unnest(i.indkey, i.indoption) koi(key, option, at) GROUP BY at;
-- Rails, ruby-pg
SET standard_conforming_strings = on;
SET SESSION timezone TO 'UTC';
SET SESSION intervalstyle TO 'iso_8601';
SELECT t.oid, t.typname FROM pg_type AS t LEFT JOIN pg_range AS r ON oid = rngtypid WHERE t.typname IN ('int2', 'int4') OR t.typinput = 'array_in(cstring,oid,integer)'::regprocedure;
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum) FROM pg_attribute a, pg_attrdef d;
SELECT n.nspname FROM pg_namespace n WHERE n.nspname = ANY (current_schemas(false));
SHOW max_identifier_length;
-- JDBC
SET extra_float_digits = 3;
SET application_name = 'PostgreSQL JDBC Driver';
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY;
SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE;
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ;
SET SESSION search_path TO 'app';
SHOW TRANSACTION ISOLATION LEVEL;
SELECT (information_schema._pg_expandarray(i.indkey)).n FROM pg_catalog.pg_index i;
SELECT t.typname, e.typdelim, t.typinput = 'pg_catalog.array_in'::regproc, CASE WHEN n.nspname = ANY(current_schemas(true)) THEN 0 ELSE 1 END FROM pg_type t;
-- Npgsql
SET SESSION AUTHORIZATION DEFAULT;
DISCARD SEQUENCES;
DISCARD TEMP;
SELECT version();
-- node-postgres, postgres.js, PDO, Go, Prisma
BEGIN;
select b.oid, b.typarray from pg_catalog.pg_type a left join pg_catalog.pg_type b on b.oid = a.typelem where a.typcategory = 'A' group by b.oid, b.typarray;
DEALLOCATE pdo_stmt_00000001;
SET search_path = "public";
SELECT current_setting('server_version_num')::int4, version();
-- pg_dump's output
SELECT pg_catalog.set_config('search_path', '', false);
SET statement_timeout = 0;
