-- Sessions, their transcripts, and the messages accepted for them.

CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  key TEXT NOT NULL,
  agent TEXT NOT NULL,
  archived_at INTEGER,                -- an earlier conversation under the same key
  updated_at INTEGER NOT NULL,
  row TEXT NOT NULL CHECK (json_valid(row)),  -- sessions/session.py: Session
  extra TEXT CHECK (extra IS NULL OR json_valid(extra))  -- fields of an imported store that we do not know
) STRICT;

CREATE UNIQUE INDEX sessions_current ON sessions (key) WHERE archived_at IS NULL;
CREATE INDEX sessions_by_time ON sessions (updated_at);

-- `position` counts through all sessions: an index that knows how far it has read knows what is new.
CREATE TABLE entries (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  id TEXT NOT NULL,
  parent_id TEXT,
  type TEXT NOT NULL,
  payload TEXT NOT NULL,              -- the JSON object as it was written, byte for byte
  UNIQUE (session_id, id)
) STRICT;

CREATE INDEX entries_in_order ON entries (session_id, position);

-- What was said is not rewritten (promise 1).
CREATE TRIGGER entries_are_never_changed BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

CREATE TRIGGER entries_are_never_removed BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

-- A row is the promise that a message will not be lost. `accepted` gives the order of acceptance.
CREATE TABLE runs (
  accepted INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id TEXT NOT NULL UNIQUE,
  idempotency_key TEXT NOT NULL UNIQUE,
  session_key TEXT NOT NULL,
  inbound TEXT NOT NULL CHECK (json_valid(inbound)),
  accepted_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  result TEXT CHECK (result IS NULL OR json_valid(result))
) STRICT;

CREATE INDEX runs_pending ON runs (accepted) WHERE result IS NULL;
