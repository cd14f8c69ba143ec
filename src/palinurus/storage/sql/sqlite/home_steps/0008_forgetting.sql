-- Words may be taken out of what was said, by a forgetting and by nothing else (promise 1).

CREATE TABLE forgettings (
  id TEXT PRIMARY KEY,
  at INTEGER NOT NULL,
  open INTEGER NOT NULL,              -- 1 only inside of the transaction that takes the words out
  row TEXT NOT NULL CHECK (json_valid(row))  -- how much went where; never which words
) STRICT;

DROP TRIGGER entries_are_never_changed;
CREATE TRIGGER entries_are_never_changed BEFORE UPDATE OF position, session_id, id, parent_id, type ON entries
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;
CREATE TRIGGER words_are_only_forgotten BEFORE UPDATE OF payload ON entries
WHEN NOT EXISTS (SELECT 1 FROM forgettings WHERE open)
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

DROP TRIGGER extractions_are_never_changed;
CREATE TRIGGER extractions_are_never_changed BEFORE UPDATE OF number, id, session_id, position, private, notes
ON extractions
BEGIN SELECT RAISE(ABORT, 'extractions are append-only'); END;
CREATE TRIGGER notes_are_only_forgotten BEFORE UPDATE OF row ON extractions
WHEN NOT EXISTS (SELECT 1 FROM forgettings WHERE open)
BEGIN SELECT RAISE(ABORT, 'extractions are append-only'); END;
