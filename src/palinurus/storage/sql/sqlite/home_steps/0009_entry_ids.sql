-- Where an entry stands by its id is a table of its own. As an index of `entries` it was written to with every entry, all
-- over: ids come in no order, and for a conversation of a million entries that was most of the work. What is brought in
-- from another home is entered here when it is whole, in the order of its ids.

CREATE TABLE entry_ids (
  session_id TEXT NOT NULL,
  id TEXT NOT NULL,
  position INTEGER NOT NULL,          -- of the entry
  PRIMARY KEY (session_id, id)
) WITHOUT ROWID, STRICT;

CREATE TABLE entries_anew (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  id TEXT NOT NULL,
  parent_id TEXT,
  type TEXT NOT NULL,
  payload TEXT NOT NULL               -- the JSON object as it was written, byte for byte
) STRICT;

INSERT INTO entries_anew SELECT position, session_id, id, parent_id, type, payload FROM entries ORDER BY position;
INSERT INTO entry_ids SELECT session_id, id, position FROM entries ORDER BY session_id, id;
DELETE FROM sqlite_sequence WHERE name = 'entries_anew';
INSERT INTO sqlite_sequence (name, seq) SELECT 'entries_anew', seq FROM sqlite_sequence WHERE name = 'entries';
DROP TABLE entries;
ALTER TABLE entries_anew RENAME TO entries;

CREATE INDEX entries_in_order ON entries (session_id, position);

-- No two entries of a conversation have one id, and history leaves what the model reads only after it was saved (promise
-- 2). A conversation that nobody sees yet is let through: its ids are entered, and what its cuts have put away is
-- recorded, before it is shown. One rule for both, because it is asked for every entry.
CREATE TRIGGER entries_keep_the_rules AFTER INSERT ON entries
WHEN NOT EXISTS (SELECT 1 FROM sessions WHERE id = NEW.session_id AND staged IS NOT NULL)
BEGIN
  SELECT RAISE(ABORT, 'some messages would leave the conversation before they were saved in notes')
  WHERE NEW.type IN ('compaction', 'reset') AND EXISTS (
    SELECT 1 FROM entries e
    WHERE e.session_id = NEW.session_id AND e.type = 'message' AND e.position < NEW.position
      AND e.position > COALESCE((SELECT MAX(x.position) FROM extractions x WHERE x.session_id = NEW.session_id), 0)
      AND e.position < COALESCE(
        (SELECT k.position FROM entry_ids k WHERE k.session_id = NEW.session_id
         AND k.id = CASE WHEN json_valid(NEW.payload) THEN NEW.payload ->> '$.firstKeptEntryId' END),
        9223372036854775807));
  INSERT INTO entry_ids (session_id, id, position) VALUES (NEW.session_id, NEW.id, NEW.position);
END;

CREATE TRIGGER entry_ids_are_never_changed BEFORE UPDATE ON entry_ids
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

CREATE TRIGGER entry_ids_are_never_removed BEFORE DELETE ON entry_ids
WHEN (SELECT staged FROM sessions WHERE id = OLD.session_id) IS NULL
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

-- The rules of the earlier steps, which went with the table (promise 1).
CREATE TRIGGER entries_are_never_changed BEFORE UPDATE OF position, session_id, parent_id, type ON entries
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

-- Two lines of another home's transcript may have one id; the later one gets another before it is shown.
CREATE TRIGGER ids_are_never_changed BEFORE UPDATE OF id ON entries
WHEN (SELECT staged FROM sessions WHERE id = OLD.session_id) IS NULL
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

CREATE TRIGGER words_are_only_forgotten BEFORE UPDATE OF payload ON entries
WHEN NOT EXISTS (SELECT 1 FROM forgettings WHERE open)
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;

CREATE TRIGGER entries_are_never_removed BEFORE DELETE ON entries
WHEN (SELECT staged FROM sessions WHERE id = OLD.session_id) IS NULL
BEGIN SELECT RAISE(ABORT, 'transcripts are append-only'); END;
