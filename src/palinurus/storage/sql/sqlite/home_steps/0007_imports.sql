-- Conversations that come from other homes, and documents that wait for the rooms that will use them.

-- A conversation is brought in piece by piece; until it is whole nobody sees it.
ALTER TABLE sessions ADD COLUMN staged INTEGER;  -- 1: not shown yet; `archived_at` is then set, so its key stays free

CREATE INDEX sessions_staged ON sessions (id) WHERE staged IS NOT NULL;

CREATE TABLE imports (
  source TEXT PRIMARY KEY,            -- which transcript of which home
  session_id TEXT NOT NULL REFERENCES sessions (id),
  entries INTEGER NOT NULL,           -- of the source, that are stored
  digest TEXT NOT NULL,               -- of these entries
  finished INTEGER NOT NULL DEFAULT 0,
  at INTEGER NOT NULL
) STRICT;

CREATE INDEX imports_by_session ON imports (session_id);

CREATE TABLE imported_documents (
  source TEXT NOT NULL,               -- which home
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  text TEXT NOT NULL,                 -- word for word
  at INTEGER NOT NULL,
  PRIMARY KEY (source, kind, name)
) STRICT;

-- What was never shown may be taken back.
DROP TRIGGER entries_are_never_removed;
CREATE TRIGGER entries_are_never_removed BEFORE DELETE ON entries
WHEN (SELECT staged FROM sessions WHERE id = OLD.session_id) IS NULL
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

DROP TRIGGER extractions_are_never_removed;
CREATE TRIGGER extractions_are_never_removed BEFORE DELETE ON extractions
WHEN (SELECT staged FROM sessions WHERE id = OLD.session_id) IS NULL
BEGIN SELECT RAISE(ABORT, 'extractions are append-only'); END;
