-- Version 1.1.1 is not Temporal's: the third number counts what Forebay's stores need beside Temporal's tables.

-- An owner-to-be that was defeated a few times asks the owner to pause. Nothing but speed depends on these rows.
CREATE TABLE shard_takeovers (
  shard_id INTEGER NOT NULL,
  range_id BIGINT NOT NULL,
  PRIMARY KEY (shard_id)
);

-- Earlier versions of the stores announced it in rows of shards with negative numbers, which a process that was killed may have left.
-- A shard has data with an encoding. There are at most a few such rows; the limit is that of a transaction.
DELETE FROM shards WHERE shard_id IN (SELECT shard_id FROM shards WHERE shard_id < 0 AND data_encoding = '' LIMIT 2500);
