-- Schema 1.1: the current execution of each business id, by archetype.

CREATE TABLE current_chasm_executions (
  shard_id           INTEGER NOT NULL,
  namespace_id       UUID NOT NULL,
  business_id        VARCHAR(255) NOT NULL,
  archetype_id       BIGINT NOT NULL,
  run_id             UUID NOT NULL,
  create_request_id  VARCHAR(255) NOT NULL,
  state              INTEGER NOT NULL,
  status             INTEGER NOT NULL,
  start_version      BIGINT NOT NULL DEFAULT 0,
  start_time         TIMESTAMP,
  last_write_version BIGINT NOT NULL,
  data               BYTEA,
  data_encoding      VARCHAR(16) NOT NULL DEFAULT '',
  PRIMARY KEY (shard_id, namespace_id, business_id, archetype_id)
);
