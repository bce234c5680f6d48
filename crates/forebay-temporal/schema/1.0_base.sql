-- Schema 1.0 of Temporal's persistence, for Aurora DSQL. One statement is one transaction.
--
-- It differs from the schema for PostgreSQL in four ways: identifiers are UUID, nothing is numbered by the database, there is no
-- CHECK and no computed DEFAULT, and UNIQUE is an index that is built in the background.

-- Namespaces and cluster

CREATE TABLE namespaces (
  partition_id         INTEGER NOT NULL,
  id                   UUID NOT NULL,
  name                 VARCHAR(255) NOT NULL,
  notification_version BIGINT NOT NULL,
  data                 BYTEA NOT NULL,
  data_encoding        VARCHAR(16) NOT NULL,
  is_global            BOOLEAN NOT NULL,
  PRIMARY KEY (partition_id, id)
);

CREATE UNIQUE INDEX ASYNC idx_namespaces_name ON namespaces (name);

-- One row: it counts every change of a namespace.
CREATE TABLE namespace_metadata (
  partition_id         INTEGER NOT NULL,
  notification_version BIGINT NOT NULL,
  PRIMARY KEY (partition_id)
);

INSERT INTO namespace_metadata (partition_id, notification_version) VALUES (54321, 1);

CREATE TABLE cluster_metadata_info (
  metadata_partition INTEGER NOT NULL,
  cluster_name       VARCHAR(255) NOT NULL,
  data               BYTEA NOT NULL,
  data_encoding      VARCHAR(16) NOT NULL,
  version            BIGINT NOT NULL,
  PRIMARY KEY (metadata_partition, cluster_name)
);

-- The three times have no defaults: every writer sets them.
CREATE TABLE cluster_membership (
  membership_partition INTEGER NOT NULL,
  host_id              UUID NOT NULL,
  rpc_address          VARCHAR(128) NOT NULL,
  rpc_port             SMALLINT NOT NULL,
  role                 SMALLINT NOT NULL,
  session_start        TIMESTAMP,
  last_heartbeat       TIMESTAMP,
  record_expiry        TIMESTAMP,
  PRIMARY KEY (membership_partition, host_id)
);

CREATE INDEX ASYNC cm_idx_rolehost ON cluster_membership (role, host_id);

CREATE INDEX ASYNC cm_idx_rolelasthb ON cluster_membership (role, last_heartbeat);

CREATE INDEX ASYNC cm_idx_rpchost ON cluster_membership (rpc_address, role);

CREATE INDEX ASYNC cm_idx_lasthb ON cluster_membership (last_heartbeat);

CREATE INDEX ASYNC cm_idx_recordexpiry ON cluster_membership (record_expiry);

-- Shards and executions

-- range_id is the fence: it grows with every change of owner.
CREATE TABLE shards (
  shard_id      INTEGER NOT NULL,
  range_id      BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id)
);

CREATE TABLE executions (
  shard_id           INTEGER NOT NULL,
  namespace_id       UUID NOT NULL,
  workflow_id        VARCHAR(255) NOT NULL,
  run_id             UUID NOT NULL,
  next_event_id      BIGINT NOT NULL,
  last_write_version BIGINT NOT NULL,
  data               BYTEA NOT NULL,
  data_encoding      VARCHAR(16) NOT NULL,
  state              BYTEA NOT NULL,
  state_encoding     VARCHAR(16) NOT NULL,
  db_record_version  BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id)
);

-- The run that a workflow id stands for.
CREATE TABLE current_executions (
  shard_id           INTEGER NOT NULL,
  namespace_id       UUID NOT NULL,
  workflow_id        VARCHAR(255) NOT NULL,
  run_id             UUID NOT NULL,
  create_request_id  VARCHAR(255) NOT NULL,
  state              INTEGER NOT NULL,
  status             INTEGER NOT NULL,
  start_version      BIGINT NOT NULL DEFAULT 0,
  start_time         TIMESTAMP,
  last_write_version BIGINT NOT NULL,
  data               BYTEA,
  data_encoding      VARCHAR(16) NOT NULL DEFAULT '',
  PRIMARY KEY (shard_id, namespace_id, workflow_id)
);

-- id comes from the id generator of the writing process.
CREATE TABLE buffered_events (
  shard_id      INTEGER NOT NULL,
  namespace_id  UUID NOT NULL,
  workflow_id   VARCHAR(255) NOT NULL,
  run_id        UUID NOT NULL,
  id            BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, id)
);

CREATE UNIQUE INDEX ASYNC idx_buffered_events_id ON buffered_events (id);

-- Parts of an execution: one row for each entry of a map or a set

CREATE TABLE activity_info_maps (
  shard_id      INTEGER NOT NULL,
  namespace_id  UUID NOT NULL,
  workflow_id   VARCHAR(255) NOT NULL,
  run_id        UUID NOT NULL,
  schedule_id   BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16),
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, schedule_id)
);

CREATE TABLE timer_info_maps (
  shard_id      INTEGER NOT NULL,
  namespace_id  UUID NOT NULL,
  workflow_id   VARCHAR(255) NOT NULL,
  run_id        UUID NOT NULL,
  timer_id      VARCHAR(255) NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16),
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, timer_id)
);

CREATE TABLE child_execution_info_maps (
  shard_id      INTEGER NOT NULL,
  namespace_id  UUID NOT NULL,
  workflow_id   VARCHAR(255) NOT NULL,
  run_id        UUID NOT NULL,
  initiated_id  BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16),
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, initiated_id)
);

CREATE TABLE request_cancel_info_maps (
  shard_id      INTEGER NOT NULL,
  namespace_id  UUID NOT NULL,
  workflow_id   VARCHAR(255) NOT NULL,
  run_id        UUID NOT NULL,
  initiated_id  BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16),
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, initiated_id)
);

CREATE TABLE signal_info_maps (
  shard_id      INTEGER NOT NULL,
  namespace_id  UUID NOT NULL,
  workflow_id   VARCHAR(255) NOT NULL,
  run_id        UUID NOT NULL,
  initiated_id  BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16),
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, initiated_id)
);

CREATE TABLE signals_requested_sets (
  shard_id     INTEGER NOT NULL,
  namespace_id UUID NOT NULL,
  workflow_id  VARCHAR(255) NOT NULL,
  run_id       UUID NOT NULL,
  signal_id    VARCHAR(255) NOT NULL,
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, signal_id)
);

CREATE TABLE chasm_node_maps (
  shard_id          INTEGER NOT NULL,
  namespace_id      UUID NOT NULL,
  workflow_id       VARCHAR(255) NOT NULL,
  run_id            UUID NOT NULL,
  chasm_path        VARCHAR(255) NOT NULL,
  metadata          BYTEA NOT NULL,
  metadata_encoding VARCHAR(16),
  data              BYTEA,
  data_encoding     VARCHAR(16),
  PRIMARY KEY (shard_id, namespace_id, workflow_id, run_id, chasm_path)
);

-- Histories

CREATE TABLE history_node (
  shard_id      INTEGER NOT NULL,
  tree_id       UUID NOT NULL,
  branch_id     UUID NOT NULL,
  node_id       BIGINT NOT NULL,
  txn_id        BIGINT NOT NULL,
  prev_txn_id   BIGINT NOT NULL DEFAULT 0,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, tree_id, branch_id, node_id, txn_id)
);

CREATE TABLE history_tree (
  shard_id      INTEGER NOT NULL,
  tree_id       UUID NOT NULL,
  branch_id     UUID NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, tree_id, branch_id)
);

-- Tasks of the history service

CREATE TABLE history_immediate_tasks (
  shard_id      INTEGER NOT NULL,
  category_id   INTEGER NOT NULL,
  task_id       BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, category_id, task_id)
);

CREATE TABLE history_scheduled_tasks (
  shard_id             INTEGER NOT NULL,
  category_id          INTEGER NOT NULL,
  visibility_timestamp TIMESTAMP NOT NULL,
  task_id              BIGINT NOT NULL,
  data                 BYTEA NOT NULL,
  data_encoding        VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, category_id, visibility_timestamp, task_id)
);

CREATE TABLE transfer_tasks (
  shard_id      INTEGER NOT NULL,
  task_id       BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, task_id)
);

CREATE TABLE timer_tasks (
  shard_id             INTEGER NOT NULL,
  visibility_timestamp TIMESTAMP NOT NULL,
  task_id              BIGINT NOT NULL,
  data                 BYTEA NOT NULL,
  data_encoding        VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, visibility_timestamp, task_id)
);

CREATE TABLE replication_tasks (
  shard_id      INTEGER NOT NULL,
  task_id       BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, task_id)
);

CREATE TABLE replication_tasks_dlq (
  source_cluster_name VARCHAR(255) NOT NULL,
  shard_id            INTEGER NOT NULL,
  task_id             BIGINT NOT NULL,
  data                BYTEA NOT NULL,
  data_encoding       VARCHAR(16) NOT NULL,
  PRIMARY KEY (source_cluster_name, shard_id, task_id)
);

CREATE TABLE visibility_tasks (
  shard_id      INTEGER NOT NULL,
  task_id       BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (shard_id, task_id)
);

-- Task queues of the matching service

CREATE TABLE tasks (
  range_hash    BIGINT NOT NULL,
  task_queue_id UUID NOT NULL,
  task_id       BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (range_hash, task_queue_id, task_id)
);

CREATE TABLE task_queues (
  range_hash    BIGINT NOT NULL,
  task_queue_id UUID NOT NULL,
  range_id      BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (range_hash, task_queue_id)
);

-- Tasks in passes: pass and task_id together only grow.
CREATE TABLE tasks_v2 (
  range_hash    BIGINT NOT NULL,
  task_queue_id UUID NOT NULL,
  pass          BIGINT NOT NULL,
  task_id       BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (range_hash, task_queue_id, pass, task_id)
);

CREATE TABLE task_queues_v2 (
  range_hash    BIGINT NOT NULL,
  task_queue_id UUID NOT NULL,
  range_id      BIGINT NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (range_hash, task_queue_id)
);

CREATE TABLE task_queue_user_data (
  namespace_id    UUID NOT NULL,
  task_queue_name VARCHAR(255) NOT NULL,
  data            BYTEA NOT NULL,
  data_encoding   VARCHAR(16) NOT NULL,
  version         BIGINT NOT NULL,
  PRIMARY KEY (namespace_id, task_queue_name)
);

CREATE TABLE build_id_to_task_queue (
  namespace_id    UUID NOT NULL,
  build_id        VARCHAR(255) NOT NULL,
  task_queue_name VARCHAR(255) NOT NULL,
  PRIMARY KEY (namespace_id, build_id, task_queue_name)
);

-- Queues between services

CREATE TABLE queue (
  queue_type       INTEGER NOT NULL,
  message_id       BIGINT NOT NULL,
  message_payload  BYTEA NOT NULL,
  message_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (queue_type, message_id)
);

CREATE TABLE queue_metadata (
  queue_type    INTEGER NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  version       BIGINT NOT NULL,
  PRIMARY KEY (queue_type)
);

CREATE TABLE queues (
  queue_type        INTEGER NOT NULL,
  queue_name        VARCHAR(255) NOT NULL,
  metadata_payload  BYTEA NOT NULL,
  metadata_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (queue_type, queue_name)
);

CREATE TABLE queue_messages (
  queue_type       INTEGER NOT NULL,
  queue_name       VARCHAR(255) NOT NULL,
  queue_partition  BIGINT NOT NULL,
  message_id       BIGINT NOT NULL,
  message_payload  BYTEA NOT NULL,
  message_encoding VARCHAR(16) NOT NULL,
  PRIMARY KEY (queue_type, queue_name, queue_partition, message_id)
);

-- Nexus

CREATE TABLE nexus_endpoints (
  id            UUID NOT NULL,
  data          BYTEA NOT NULL,
  data_encoding VARCHAR(16) NOT NULL,
  version       BIGINT NOT NULL,
  PRIMARY KEY (id)
);

-- One row, with id 0: the version of all endpoints together. Writers see to it that there is no other.
CREATE TABLE nexus_endpoints_partition_status (
  id      INTEGER NOT NULL DEFAULT 0,
  version BIGINT NOT NULL,
  PRIMARY KEY (id)
);

-- The version of this schema, which servers check when they start

CREATE TABLE schema_version (
  version_partition      INTEGER NOT NULL,
  db_name                VARCHAR(255) NOT NULL,
  creation_time          TIMESTAMP,
  curr_version           VARCHAR(64),
  min_compatible_version VARCHAR(64),
  PRIMARY KEY (version_partition, db_name)
);

CREATE TABLE schema_update_history (
  version_partition INTEGER NOT NULL,
  year              INTEGER NOT NULL,
  month             INTEGER NOT NULL,
  update_time       TIMESTAMP NOT NULL,
  description       VARCHAR(255),
  manifest_md5      VARCHAR(64),
  new_version       VARCHAR(64),
  old_version       VARCHAR(64),
  PRIMARY KEY (version_partition, year, month, update_time)
);
