-- session_by_key --
-- The conversation that goes on under a key.
SELECT row FROM sessions WHERE key = :key AND archived_at IS NULL;

-- session_by_id --
SELECT row FROM sessions WHERE id = :id;

-- add_session --
-- A conversation begins; somebody else may have begun it a moment ago.
INSERT INTO sessions (id, key, agent, updated_at, row) VALUES (:id, :key, :agent, :now, :row)
ON CONFLICT (key) WHERE archived_at IS NULL DO NOTHING;

-- change_session --
UPDATE sessions SET row = :row, updated_at = :now WHERE id = :id;

-- archive_session --
-- It ends; from now on its key belongs to whoever speaks next.
UPDATE sessions SET row = :row, updated_at = :now, archived_at = :now WHERE id = :id;

-- sessions_archived --
-- Earlier conversations under a key, newest first.
SELECT row FROM sessions WHERE key = :key AND archived_at IS NOT NULL AND staged IS NULL
ORDER BY archived_at DESC, rowid DESC;

-- sessions_by_time --
-- What was spoken in last comes first; an empty agent means every agent.
SELECT row FROM sessions
WHERE (:archived OR archived_at IS NULL) AND (:agent = '' OR agent = :agent) AND staged IS NULL
ORDER BY updated_at DESC, key LIMIT :limit;

-- entries_of --
-- The transcript of a session, oldest first, without its first rows.
SELECT id, parent_id, payload FROM entries WHERE session_id = :session_id ORDER BY position LIMIT -1 OFFSET :after;

-- imported_of --
-- How many of its first entries came from another home; what was said here since stands behind them.
SELECT s.key, sum(i.entries) FROM imports i JOIN sessions s ON s.id = i.session_id
WHERE i.session_id = :session_id GROUP BY s.key;

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
VALUES (:id, :session_id, :position, :private, :place, :notes, :row) ON CONFLICT (id) DO NOTHING;

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

-- accept_run --
-- The first under an idempotency key wins.
INSERT INTO runs (run_id, idempotency_key, session_key, inbound, accepted_at)
VALUES (:run_id, :idempotency_key, :session_key, :inbound, :accepted_at)
ON CONFLICT (idempotency_key) DO NOTHING;

-- run_by_idempotency_key --
SELECT run_id, idempotency_key, session_key, inbound, accepted_at, attempts, result
FROM runs WHERE idempotency_key = :idempotency_key;

-- run_by_id --
SELECT run_id, idempotency_key, session_key, inbound, accepted_at, attempts, result FROM runs WHERE run_id = :run_id;

-- runs_pending --
-- Accepted and not finished, in the order of acceptance.
SELECT run_id, idempotency_key, session_key, inbound, accepted_at, attempts, result
FROM runs WHERE result IS NULL ORDER BY accepted;

-- begin_run --
UPDATE runs SET attempts = attempts + 1 WHERE run_id = :run_id;

-- finish_run --
-- The first result stays.
UPDATE runs SET result = :result WHERE run_id = :run_id AND result IS NULL;
