-- What model calls used and cost. One row for each reply; the same reply written again is the same row.

CREATE TABLE usage (
  session_key TEXT NOT NULL,
  entry_id TEXT NOT NULL,             -- of the reply in the transcript
  at INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  input INTEGER NOT NULL,
  output INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  cost REAL,                          -- US dollars; NULL when nobody told the price, which is not free
  PRIMARY KEY (session_key, entry_id)
) STRICT;

CREATE INDEX usage_by_time ON usage (at);
