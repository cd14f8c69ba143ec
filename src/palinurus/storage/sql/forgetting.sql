-- sessions_called --
-- All conversations under a key, or the one with an id.
SELECT id, key FROM sessions WHERE key = :which OR id = :which;

-- runs_in --
-- Messages that were accepted for these conversations: an entry has the id of its run.
SELECT e.id FROM entries e JOIN runs r ON r.run_id = e.id
WHERE e.session_id IN (SELECT value FROM json_each(:sessions));

-- find_entries --
-- A row of each: its own key, then conversation, key and run that it belongs to, then the texts.
SELECT e.position AS at, e.session_id, s.key, '', e.payload FROM entries e JOIN sessions s ON s.id = e.session_id;

-- set_entries --
UPDATE entries SET payload = ?2 WHERE position = ?1;

-- find_extractions --
SELECT x.number AS at, x.session_id, s.key, '', x.row FROM extractions x JOIN sessions s ON s.id = x.session_id;

-- set_extractions --
UPDATE extractions SET row = ?2 WHERE number = ?1;

-- find_runs --
SELECT accepted AS at, '', session_key, run_id, inbound, result FROM runs;

-- set_runs --
UPDATE runs SET inbound = ?2, result = ?3 WHERE accepted = ?1;

-- find_sessions --
SELECT rowid AS at, id, key, '', row, extra FROM sessions;

-- set_sessions --
UPDATE sessions SET row = ?2, extra = ?3 WHERE rowid = ?1;

-- find_outbox --
SELECT queued AS at, '', row ->> '$.sessionKey', row ->> '$.runId', row FROM outbox;

-- set_outbox --
-- It has another revision now: whoever held the old words must look again.
UPDATE outbox SET revision = revision + 1, row = json_set(?2, '$.revision', revision + 1) WHERE queued = ?1;

-- find_imported_documents --
SELECT rowid AS at, '', '', '', text FROM imported_documents;

-- set_imported_documents --
UPDATE imported_documents SET text = ?2 WHERE rowid = ?1;

-- find_approvals --
-- One that still waits is left to whoever has to decide.
SELECT rowid AS at, '', row ->> '$.sessionKey', row ->> '$.runId', row FROM approvals WHERE status <> 'pending';

-- drop_approvals --
DELETE FROM approvals WHERE rowid = ?1;

-- find_grants --
SELECT rowid AS at, '', row ->> '$.sessionKey', '', row FROM grants;

-- drop_grants --
DELETE FROM grants WHERE rowid = ?1;

-- find_traces --
SELECT ended AS at, '', session_key, run_id, row FROM traces;

-- drop_traces --
DELETE FROM traces WHERE ended = ?1;

-- find_audit_details --
SELECT d.seq AS at, '', a.session_key, a.run_id, d.details
FROM audit_details d JOIN audit a ON a.seq = d.seq WHERE a.kind <> 'erase';

-- parcels_waiting --
SELECT id FROM outbox WHERE queued IN (SELECT value FROM json_each(:keys)) AND state = 'waiting';

-- text_columns --
-- Every place of the database that can hold words.
SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND c.type <> 'INTEGER' AND c.type <> 'REAL'
ORDER BY t.name, c.cid;

-- begin_forgetting --
INSERT INTO forgettings (id, at, open, row) VALUES (:id, :at, 1, :row)
ON CONFLICT (id) DO UPDATE SET open = 1;

-- end_forgetting --
UPDATE forgettings SET open = 0 WHERE id = :id;

-- session_and_tail --
SELECT s.row, (SELECT e.id FROM entries e WHERE e.session_id = s.id ORDER BY e.position DESC LIMIT 1)
FROM sessions s WHERE s.id = :id;

-- keep_session --
UPDATE sessions SET row = :row WHERE id = :id;

-- entries_in_all --
SELECT count(*) FROM entries;

-- entry_count --
SELECT count(*) FROM entries WHERE session_id = :id;

-- conversations_of --
SELECT DISTINCT s.id, s.key FROM entries e JOIN sessions s ON s.id = e.session_id
WHERE e.position IN (SELECT value FROM json_each(:keys));

-- first_said --
SELECT min(payload ->> '$.timestamp') FROM entries
WHERE position IN (SELECT value FROM json_each(:keys)) AND json_valid(payload);
