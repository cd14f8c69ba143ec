-- Files that hold text from outside: written by a run that had read such text. Every reader of files asks.
CREATE TABLE file_origins (
  path TEXT PRIMARY KEY,
  at INTEGER NOT NULL,
  row TEXT NOT NULL CHECK (json_valid(row))  -- workspace/file_origins.py: FileOrigin
) STRICT;
