-- session_by_key --
-- The conversation that goes on under a key.
SELECT row FROM sessions WHERE key = :key AND archived_at IS NULL;

-- session_by_id --
SELECT row FROM sessions WHERE id = :id;

-- add_session --
-- A conversation begins; somebody else may have begun it a moment ago.
INSERT INTO sessions (id, key, agent, updated_at, row) VALUES (:id, :key, :agent, :now, :row)
ON CONFLICT (tenant, key) WHERE archived_at IS NULL DO NOTHING;

-- change_session --
UPDATE sessions SET row = :row, updated_at = :now WHERE id = :id;

-- archive_session --
-- It ends; from now on its key belongs to whoever speaks next.
UPDATE sessions SET row = :row, updated_at = :now, archived_at = :now WHERE id = :id;

-- sessions_archived --
-- Earlier conversations under a key, newest first.
SELECT row FROM sessions WHERE key = :key AND archived_at IS NOT NULL AND staged IS NULL
ORDER BY archived_at DESC, number DESC;

-- sessions_by_time --
-- What was spoken in last comes first; an empty agent means every agent. One-offs have the keys agent:ID:openai:...
SELECT row FROM sessions
WHERE (:archived <> 0 OR archived_at IS NULL) AND (:agent = '' OR agent = :agent) AND staged IS NULL
AND (:one_offs <> 0 OR substr(key, length(agent) + 8, 7) <> 'openai:')
ORDER BY updated_at DESC, key LIMIT :limit;

-- entries_of --
-- The transcript of a session, oldest first, without its first rows.
SELECT id, parent_id, payload FROM entries WHERE session_id = :session_id ORDER BY position OFFSET :after;

-- imported_of --
-- How many of its first entries came from another home; what was said here since stands behind them.
SELECT sum(entries)::bigint, (SELECT key FROM sessions WHERE id = :session_id) FROM imports WHERE session_id = :session_id;

-- add_entry --
-- An entry that is there already stays as it is: a resumed turn may repeat itself.
INSERT INTO entries (session_id, id, parent_id, type, payload)
SELECT :session_id, :id, :parent_id, :type, :payload
WHERE NOT EXISTS (SELECT 1 FROM entry_ids WHERE session_id = :session_id AND id = :id);

-- entries_after --
-- What an index has not read yet. Only what somebody said is searched.
SELECT e.position, e.session_id, s.key, s.agent, e.id, e.payload
FROM entries e JOIN sessions s ON s.id = e.session_id
WHERE e.position > :position AND e.type IN ('message', 'custom_message', 'compaction')
ORDER BY e.position LIMIT :limit;

-- entry_at --
SELECT id FROM entries WHERE position = :position;

-- position_of --
SELECT position FROM entry_ids WHERE session_id = :session_id AND id = :id;

-- add_extraction --
-- Notes that are there already stay as they are.
INSERT INTO extractions (id, session_id, position, private, place, notes, row)
VALUES (:id, :session_id, :position, :private, :place, :notes, :row) ON CONFLICT (tenant, id) DO NOTHING;

-- cursor_of --
-- The last entry whose words are in notes.
SELECT e.id FROM extractions x JOIN entries e ON e.position = x.position
WHERE x.session_id = :session_id ORDER BY x.position DESC LIMIT 1;

-- extractions_of --
SELECT row, place FROM extractions WHERE session_id = :session_id ORDER BY number;

-- extractions_unplaced --
-- Private notes that wait to be written into a file.
SELECT row, place FROM extractions WHERE place = '' AND private = 1 AND notes = 1 ORDER BY number LIMIT :limit;

-- place_extraction --
UPDATE extractions SET place = :place WHERE id = :id;

-- any_session --
-- Whether an agent has ever been spoken to.
SELECT EXISTS (SELECT 1 FROM sessions WHERE agent = :agent);

-- last_entry --
-- How far the transcripts go.
SELECT coalesce(max(position), 0) FROM entries;

-- staged_sessions --
-- What is being brought in from another home and is not shown yet.
SELECT id FROM sessions WHERE staged IS NOT NULL;
