-- Work that outlives the process that was asked for it: what it is, when it is due, and how it ended.
CREATE TABLE jobs (
  queued INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  lane TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  payload TEXT NOT NULL,
  added_at INTEGER NOT NULL,
  due_at INTEGER NOT NULL,
  state TEXT NOT NULL CHECK
    (state IN ('waiting', 'running', 'retry', 'done', 'failed', 'ambiguous', 'missed', 'dropped')),
  attempts INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  outcome TEXT,
  trouble TEXT NOT NULL,
  doubtful_at INTEGER NOT NULL,
  retried_at INTEGER NOT NULL,
  retry_key TEXT NOT NULL,
  UNIQUE (kind, idempotency_key)
) STRICT;

CREATE INDEX jobs_lanes ON jobs (kind, lane, queued) WHERE state IN ('waiting', 'running', 'retry');
CREATE INDEX jobs_by_state ON jobs (state, queued);
