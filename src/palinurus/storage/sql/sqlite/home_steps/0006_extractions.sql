-- Notes of what was said, made before it is no longer read.

CREATE TABLE extractions (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  position INTEGER NOT NULL REFERENCES entries (position),  -- of the last entry whose words are in the notes
  private INTEGER NOT NULL,
  place TEXT NOT NULL DEFAULT '',     -- the file that holds the notes, once they were written there
  notes INTEGER NOT NULL,             -- whether there are any
  row TEXT NOT NULL CHECK (json_valid(row))  -- sessions/extraction.py: Extraction, without its place
) STRICT;

CREATE INDEX extractions_of_session ON extractions (session_id, position);
CREATE INDEX extractions_unplaced ON extractions (number) WHERE place = '' AND private = 1 AND notes = 1;

CREATE TRIGGER extractions_are_never_changed BEFORE UPDATE OF number, id, session_id, position, private, notes, row
ON extractions
BEGIN SELECT RAISE(ABORT, 'extractions are append-only'); END;

CREATE TRIGGER extractions_are_never_removed BEFORE DELETE ON extractions
BEGIN SELECT RAISE(ABORT, 'extractions are append-only'); END;

-- History leaves what the model reads only after it was saved (promise 2). An entry that is there already is let
-- through: it will not be added again.
CREATE TRIGGER nothing_leaves_before_it_is_saved BEFORE INSERT ON entries
WHEN NEW.type IN ('compaction', 'reset')
  AND NOT EXISTS (SELECT 1 FROM entries WHERE session_id = NEW.session_id AND id = NEW.id)
  AND EXISTS (
    SELECT 1 FROM entries e
    WHERE e.session_id = NEW.session_id AND e.type = 'message'
      AND e.position > COALESCE((SELECT MAX(x.position) FROM extractions x WHERE x.session_id = NEW.session_id), 0)
      AND e.position < COALESCE(
        (SELECT k.position FROM entries k WHERE k.session_id = NEW.session_id
         AND k.id = CASE WHEN json_valid(NEW.payload) THEN NEW.payload ->> '$.firstKeptEntryId' END),
        9223372036854775807)
  )
BEGIN SELECT RAISE(ABORT, 'some messages would leave the conversation before they were saved in notes'); END;
