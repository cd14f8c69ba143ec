-- add_session --
-- A conversation begins; somebody else may have begun it a moment ago.
INSERT INTO sessions (id, key, agent, updated_at, row) VALUES (:id, :key, :agent, :now, :row)
ON CONFLICT (tenant, key) WHERE archived_at IS NULL DO NOTHING;

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

-- add_extraction --
-- Notes that are there already stay as they are.
INSERT INTO extractions (id, session_id, position, private, place, notes, row)
VALUES (:id, :session_id, :position, :private, :place, :notes, :row) ON CONFLICT (tenant, id) DO NOTHING;
