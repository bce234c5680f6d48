-- Turns an empty PostgreSQL into an empty cluster of the service. It runs once, in single-user mode, where the system catalog
-- can be changed; a statement ends with a semicolon and an empty line. The emulator's own objects are in pg_catalog, with the
-- prefix dsql_local_.

-- The service has one database, and the template databases would have to be copied at each start.
UPDATE pg_database SET datistemplate = false;

DROP DATABASE template0;

DROP DATABASE template1;

-- The owner of the database owns the schema public. Roles that give access to the machine are removed.
CREATE ROLE admin LOGIN CREATEROLE;

ALTER DATABASE postgres OWNER TO admin;

DELETE FROM pg_authid WHERE rolname IN ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program',
  'pg_read_all_data', 'pg_write_all_data', 'pg_signal_backend', 'pg_checkpoint');

CREATE SCHEMA sys;

GRANT USAGE ON SCHEMA sys TO PUBLIC;

-- The schemas of users.
CREATE VIEW pg_catalog.dsql_local_schemas AS
  SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'sys');

GRANT SELECT ON pg_catalog.dsql_local_schemas TO PUBLIC;

-- Jobs. The statement creates the index, invalid and not maintained; its job builds it. The emulator chooses the id of a job,
-- so that the id stays the same if the statement has to run again.

CREATE TABLE pg_catalog.dsql_local_jobs (
  job_id text PRIMARY KEY,
  status text NOT NULL DEFAULT 'submitted',
  details text,
  job_type text NOT NULL,
  class_id oid NOT NULL,
  object_id oid NOT NULL,
  object_name text NOT NULL,
  start_time timestamptz NOT NULL DEFAULT date_trunc('second', clock_timestamp()),
  update_time timestamptz,
  command text NOT NULL
);

CREATE VIEW sys.jobs AS
  SELECT job_id, status, details, job_type, class_id, object_id, object_name, start_time, update_time
  FROM pg_catalog.dsql_local_jobs;

CREATE FUNCTION pg_catalog.dsql_local_submit_index(job text, made oid, uniquely boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named text := (SELECT format('%s.%I', relnamespace::regnamespace, relname) FROM pg_class
                 WHERE oid = made AND relkind = 'i' AND pg_has_role(session_user, relowner, 'USAGE'));
BEGIN
  UPDATE pg_index SET indisvalid = false, indisready = false, indisunique = uniquely WHERE indexrelid = made AND named IS NOT NULL;
  INSERT INTO dsql_local_jobs (job_id, job_type, class_id, object_id, object_name, command)
    VALUES (job, 'INDEX_BUILD', 'pg_class'::regclass, made, named, format('REINDEX INDEX %s', named));
END $$;

CREATE FUNCTION pg_catalog.dsql_local_create_index(job text, definition text, uniquely boolean) RETURNS TABLE (job_id text)
LANGUAGE plpgsql AS $$
DECLARE
  newest oid := (SELECT max(indexrelid) FROM pg_catalog.pg_index);
  made oid;
BEGIN
  EXECUTE definition;
  made := (SELECT max(indexrelid) FROM pg_catalog.pg_index WHERE indexrelid > newest);
  -- There is none if IF NOT EXISTS found an index.
  IF made IS NOT NULL THEN
    PERFORM pg_catalog.dsql_local_submit_index(job, made, uniquely);
    job_id := job;
    RETURN NEXT;
  END IF;
END $$;

CREATE FUNCTION pg_catalog.dsql_local_validate(job text, target regclass, wanted text) RETURNS TABLE (job_id text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  named name := (parse_ident(wanted))[1];
  found oid := (SELECT oid FROM pg_catalog.pg_constraint WHERE conrelid = target AND conname = named);
BEGIN
  IF NOT (SELECT pg_has_role(session_user, relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = target) THEN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be owner of table %s', target);
  END IF;
  IF found IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('constraint "%s" of relation "%s" does not exist', named, target);
  END IF;
  RETURN QUERY INSERT INTO pg_catalog.dsql_local_jobs (job_id, job_type, class_id, object_id, object_name, command)
    SELECT job, 'VALIDATE_CONSTRAINT', 'pg_constraint'::regclass, found, format('%s.%I.%I', relnamespace::regnamespace, relname, named),
      format('ALTER TABLE %s.%I VALIDATE CONSTRAINT %I', relnamespace::regnamespace, relname, named)
    FROM pg_catalog.pg_class WHERE oid = target RETURNING dsql_local_jobs.job_id;
END $$;

-- The emulator waits for the job before it runs this procedure.
CREATE PROCEDURE sys.wait_for_job(IN job_id text, INOUT succeeded boolean DEFAULT NULL)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  found text := (SELECT status FROM pg_catalog.dsql_local_jobs j WHERE j.job_id = wait_for_job.job_id);
BEGIN
  IF job_id IS NULL OR job_id !~ '^[a-z2-7]{26}$' THEN
    RAISE EXCEPTION USING ERRCODE = '22P02', MESSAGE = 'Unable to convert text to UUID';
  ELSIF found IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('job "%s" does not exist', job_id);
  ELSIF found NOT IN ('completed', 'failed') THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('job "%s" has not ended in this transaction''s snapshot', job_id);
  END IF;
  succeeded := found = 'completed';
END $$;

CREATE FUNCTION sys.dsql_major_version() RETURNS integer LANGUAGE sql STABLE AS $$ SELECT 1 $$;

-- The emulator sets the id before a statement that may need it.
CREATE FUNCTION sys.current_session_id() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN pg_catalog.dsql_local_current_setting('dsql_local.session', true);
END $$;

CREATE FUNCTION sys.current_transaction_id() RETURNS text LANGUAGE sql STABLE AS $$ SELECT pg_current_xact_id()::text $$;

CREATE FUNCTION sys.cluster_size() RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT pg_database_size(current_database()) $$;

-- The IAM identities that may connect as a role.

CREATE TABLE pg_catalog.dsql_local_iam (
  iam_oid bigint GENERATED ALWAYS AS IDENTITY (START 26398),
  arn text NOT NULL,
  role oid NOT NULL,
  grantor oid NOT NULL,
  PRIMARY KEY (role, arn)
);

CREATE VIEW sys.iam_pg_role_mappings AS
  SELECT iam_oid::oid, arn, role AS pg_role_oid, r.rolname AS pg_role_name, grantor AS grantor_pg_role_oid, g.rolname AS grantor_pg_role_name
  FROM pg_catalog.dsql_local_iam JOIN pg_catalog.pg_roles r ON r.oid = role JOIN pg_catalog.pg_roles g ON g.oid = grantor;

CREATE PROCEDURE pg_catalog.dsql_local_iam_change(verb text, named text, arn text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  -- The cast fails if there is no such role.
  member oid := named::regrole;
BEGIN
  IF session_user <> 'admin' THEN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied to %s IAM roles', lower(verb));
  ELSIF verb = 'GRANT' THEN
    INSERT INTO dsql_local_iam (arn, role, grantor) VALUES (arn, member, session_user::regrole) ON CONFLICT DO NOTHING;
  ELSE
    DELETE FROM dsql_local_iam m WHERE m.arn = dsql_local_iam_change.arn AND m.role = member;
  END IF;
END $$;

GRANT SELECT ON ALL TABLES IN SCHEMA sys TO PUBLIC;

-- Gives a precision to numeric columns without one.
CREATE FUNCTION pg_catalog.dsql_local_bare_numerics() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE pg_attribute a SET atttypmod = (18 << 16) + 6 + 4 FROM pg_class c
  WHERE c.oid = a.attrelid AND c.relkind = 'r' AND a.atttypid = 'numeric'::regtype AND a.atttypmod = -1 AND a.attnum > 0
    AND c.relnamespace IN (SELECT oid FROM dsql_local_schemas)
$$;

-- Fails if a row is larger than the service allows. Compressed values count compressed, but not in a key.
CREATE FUNCTION pg_catalog.dsql_local_weigh(relation regclass, place tid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  part record;
  bytes bigint;
  total bigint := 0;
BEGIN
  FOR part IN
    SELECT attname, format_type(atttypid, NULL) AS type FROM pg_catalog.pg_attribute
    WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped
  LOOP
    EXECUTE format('SELECT coalesce(pg_column_size(%I), 0) FROM %s WHERE ctid = $1', part.attname, relation)
      INTO bytes USING place;
    IF bytes > 1048576 THEN
      RAISE EXCEPTION USING ERRCODE = '54000',
        MESSAGE = format('datatype limit greater than 1048576 bytes not supported for %s', part.type);
    END IF;
    total := total + bytes;
  END LOOP;
  IF total > 2097152 THEN
    RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'maximum row size exceeded';
  END IF;
  FOR part IN
    SELECT string_agg(format(CASE WHEN atttypid IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'bytea'::regtype)
      THEN 'coalesce(octet_length(%I), 0)' ELSE 'coalesce(pg_column_size(%I), 0)' END, attname), ' + ') AS size
    FROM pg_catalog.pg_index i CROSS JOIN generate_series(0, indnkeyatts - 1) at
    JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = indkey[at]
    WHERE indrelid = relation GROUP BY indexrelid
  LOOP
    EXECUTE format('SELECT %s FROM %s WHERE ctid = $1', part.size, relation) INTO bytes USING place;
    IF bytes > 1981 THEN
      RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'key size too large';
    END IF;
  END LOOP;
END $$;

-- A row in the default formats, whatever the session's settings are.
CREATE FUNCTION pg_catalog.dsql_local_image(it anyelement) RETURNS text LANGUAGE plpgsql
SET DateStyle = 'ISO, MDY' SET TimeZone = 'UTC' SET IntervalStyle = 'postgres' SET extra_float_digits = 1
SET bytea_output = 'hex' AS $$
BEGIN
  RETURN it::text;
END $$;

-- Reports every changed row to change_log.rs.
CREATE FUNCTION pg_catalog.dsql_local_report() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  image text;
  old_image text;
  changed boolean := pg_catalog.dsql_local_current_setting('dsql_local.settings', true) = 'changed';
BEGIN
  IF TG_OP = 'DELETE' THEN
    image := CASE WHEN changed THEN pg_catalog.dsql_local_image(OLD) ELSE OLD::text END;
    RAISE INFO USING ERRCODE = 'DSQL1', TABLE = TG_RELID::text, COLUMN = OLD.ctid::text, MESSAGE = image;
    RETURN NULL;
  END IF;
  image := CASE WHEN changed THEN pg_catalog.dsql_local_image(NEW) ELSE NEW::text END;
  -- A smaller row is within all limits.
  IF octet_length(image) > 1900 THEN
    PERFORM pg_catalog.dsql_local_weigh(TG_RELID, NEW.ctid);
  END IF;
  IF TG_OP = 'INSERT' THEN
    RAISE INFO USING ERRCODE = 'DSQL1', TABLE = TG_RELID::text, CONSTRAINT = NEW.ctid::text, MESSAGE = image;
  ELSE
    old_image := CASE WHEN changed THEN pg_catalog.dsql_local_image(OLD) ELSE OLD::text END;
    RAISE INFO USING ERRCODE = 'DSQL1', TABLE = TG_RELID::text, COLUMN = OLD.ctid::text, CONSTRAINT = NEW.ctid::text,
      MESSAGE = image, DETAIL = old_image;
  END IF;
  RETURN NULL;
END $$;

-- Attaches the trigger to every table that lacks it. Triggers run in the order of their names. An insert or update is reported
-- before its cascades, which must follow it in a replay; a delete is reported after its cascades, which must precede it. The
-- triggers are internal, so that no list of triggers shows them.
CREATE FUNCTION pg_catalog.dsql_local_attach() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  it regclass;
BEGIN
  FOR it IN
    SELECT c.oid FROM pg_class c JOIN dsql_local_schemas n ON n.oid = c.relnamespace WHERE c.relkind = 'r'
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'dsql_local_report')
  LOOP
    EXECUTE format('CREATE TRIGGER "AA_dsql_local_report" AFTER INSERT OR UPDATE ON %s
      FOR EACH ROW EXECUTE FUNCTION pg_catalog.dsql_local_report()', it);
    EXECUTE format('CREATE TRIGGER dsql_local_report AFTER DELETE ON %s
      FOR EACH ROW EXECUTE FUNCTION pg_catalog.dsql_local_report()', it);
    UPDATE pg_trigger SET tgisinternal = true WHERE tgrelid = it AND tgname ~ 'dsql_local_report$';
  END LOOP;
END $$;

-- The version that the service reports.

DELETE FROM pg_proc WHERE oid = 'pg_catalog.version()'::regprocedure;

CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT 'PostgreSQL 16' $$;

CREATE FUNCTION pg_catalog.dsql_local_setting(name text, value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE lower(name) WHEN 'server_version' THEN '16.15' WHEN 'server_version_num' THEN '160015'
    WHEN 'max_connections' THEN '20' WHEN 'lock_timeout' THEN '0' ELSE value END
$$;

ALTER FUNCTION pg_catalog.current_setting(text) RENAME TO dsql_local_current_setting;

ALTER FUNCTION pg_catalog.current_setting(text, boolean) RENAME TO dsql_local_current_setting;

CREATE FUNCTION pg_catalog.current_setting(text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT dsql_local_setting($1, dsql_local_current_setting($1))
$$;

CREATE FUNCTION pg_catalog.current_setting(text, boolean) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT dsql_local_setting($1, dsql_local_current_setting($1, $2))
$$;

CREATE OR REPLACE VIEW pg_catalog.pg_settings AS
  SELECT name, dsql_local_setting(name, setting) AS setting, unit, category, short_desc, extra_desc, context, vartype, source,
    min_val, max_val, enumvals, dsql_local_setting(name, boot_val) AS boot_val, dsql_local_setting(name, reset_val) AS reset_val,
    sourcefile, sourceline, pending_restart
  FROM pg_show_all_settings();

-- No extensions, and no text search languages.

CREATE OR REPLACE VIEW pg_catalog.pg_available_extensions AS
  SELECT e.name, e.default_version, NULL::text COLLATE "C" AS installed_version, e.comment FROM pg_available_extensions() e WHERE false;

DELETE FROM pg_ts_config_map WHERE mapcfg <> 'simple'::regconfig;

DELETE FROM pg_ts_config WHERE cfgname <> 'simple';

DELETE FROM pg_ts_dict WHERE dictname LIKE '%\_stem';

-- The access methods of the service, in definitions only: tables and indexes keep PostgreSQL's, which its planner knows. In the
-- service, a primary key is the table, so it includes all other columns.

CREATE ACCESS METHOD btree_index TYPE INDEX HANDLER bthandler;

CREATE ACCESS METHOD btree_table TYPE TABLE HANDLER heap_tableam_handler;

CREATE FUNCTION pg_catalog.dsql_local_included(index oid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT coalesce(' INCLUDE (' || string_agg(quote_ident(attname), ', ' ORDER BY attnum) || ')', '')
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
  WHERE i.indexrelid = index AND i.indisprimary AND a.attnum > 0 AND NOT a.attisdropped AND a.attnum <> ALL (i.indkey)
$$;

ALTER FUNCTION pg_catalog.pg_get_indexdef(oid) RENAME TO dsql_local_indexdef;

ALTER FUNCTION pg_catalog.pg_get_indexdef(oid, integer, boolean) RENAME TO dsql_local_indexdef;

ALTER FUNCTION pg_catalog.pg_get_constraintdef(oid) RENAME TO dsql_local_constraintdef;

ALTER FUNCTION pg_catalog.pg_get_constraintdef(oid, boolean) RENAME TO dsql_local_constraintdef;

CREATE FUNCTION pg_catalog.pg_get_indexdef(oid) RETURNS text LANGUAGE sql STABLE STRICT AS $$
  SELECT regexp_replace(dsql_local_indexdef($1), ' USING btree ', ' USING btree_index ') || dsql_local_included($1)
$$;

CREATE FUNCTION pg_catalog.pg_get_indexdef(oid, integer, boolean) RETURNS text LANGUAGE sql STABLE STRICT AS $$
  SELECT CASE $2
    WHEN 0 THEN regexp_replace(dsql_local_indexdef($1, 0, $3), ' USING btree ', ' USING btree_index ') || dsql_local_included($1)
    ELSE dsql_local_indexdef($1, $2, $3)
  END
$$;

CREATE FUNCTION pg_catalog.dsql_local_key_included(key oid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE contype WHEN 'p' THEN dsql_local_included(conindid) ELSE '' END FROM pg_catalog.pg_constraint WHERE oid = key
$$;

CREATE FUNCTION pg_catalog.pg_get_constraintdef(oid) RETURNS text LANGUAGE sql STABLE STRICT AS $$
  SELECT dsql_local_constraintdef($1) || dsql_local_key_included($1)
$$;

CREATE FUNCTION pg_catalog.pg_get_constraintdef(oid, boolean) RETURNS text LANGUAGE sql STABLE STRICT AS $$
  SELECT dsql_local_constraintdef($1, $2) || dsql_local_key_included($1)
$$;

CREATE OR REPLACE VIEW pg_catalog.pg_indexes AS
  SELECT n.nspname AS schemaname, c.relname AS tablename, i.relname AS indexname, t.spcname AS tablespace, pg_get_indexdef(i.oid) AS indexdef
  FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_tablespace t ON t.oid = i.reltablespace
  WHERE c.relkind IN ('r', 'm', 'p') AND i.relkind IN ('i', 'I');
