-- import_by_source --
-- What is stored of a source, whether it is shown, and whether something else was said in it since.
SELECT i.session_id, i.entries, i.digest, i.finished, s.staged IS NOT NULL,
  s.staged IS NULL AND (SELECT count(*) FROM entries e WHERE e.session_id = i.session_id) > i.entries
FROM imports i JOIN sessions s ON s.id = i.session_id WHERE i.source = :source;

-- source_of --
SELECT source FROM imports WHERE session_id = :id ORDER BY at LIMIT 1;

-- adopt --
INSERT INTO imports (source, session_id, entries, digest, finished, at) VALUES (:source, :id, :entries, :digest, 1, :at)
ON CONFLICT (tenant, source) DO UPDATE SET entries = excluded.entries, digest = excluded.digest, at = excluded.at;

-- session_id_taken --
SELECT 1 FROM sessions WHERE id = :id;

-- stage_session --
INSERT INTO sessions (id, key, agent, archived_at, updated_at, row, staged)
VALUES (:id, :key, :agent, 0, :updated_at, :row, 1);

-- add_import --
INSERT INTO imports (source, session_id, entries, digest, at) VALUES (:source, :session_id, 0, '', :at);

-- add_entries --
-- The first of several rows; the code adds the others.
INSERT INTO entries (session_id, id, parent_id, type, payload) VALUES (?1, ?, ?, ?, ?);

-- sort_ids --
-- What has one id stands in the order in which it was said.
-- No table is made: a long read holds up nobody here.
SELECT set_config('pal.sorted', :id, true);

-- sorted_ids --
SELECT id, position, type FROM entries WHERE session_id = current_setting('pal.sorted', true) ORDER BY id, position;

-- enter_ids --
-- The first of several rows; the code adds the others.
INSERT INTO entry_ids (session_id, id, position) VALUES (?1, ?, ?);

-- id_position --
SELECT position FROM entry_ids WHERE session_id = :session_id AND id = :id;

-- rename_entry --
UPDATE entries SET id = :id WHERE position = :position;

-- entry_at --
SELECT id, payload FROM entries WHERE position = :position;

-- cut_before --
-- The last entry before :cut that leaves what is read when the cut at :kept is made; all of them when there is no such
-- entry.
SELECT id FROM entries WHERE session_id = :session_id AND position < :cut
  AND position < coalesce((SELECT position FROM entry_ids WHERE session_id = :session_id AND id = :kept), :cut)
ORDER BY position DESC LIMIT 1;

-- import_grew --
UPDATE imports SET entries = entries + :count, digest = :digest, at = :at WHERE source = :source;

-- import_finished --
UPDATE imports SET finished = 1 WHERE source = :source;

-- set_imported_row --
-- What SQLite does not take for JSON is not kept beside it; the transcript is.
UPDATE sessions SET row = :row, extra = CASE WHEN :extra::text IS JSON THEN :extra END, updated_at = :updated_at WHERE id = :id;

-- finished_sessions --
SELECT s.id, s.row FROM sessions s JOIN imports i ON i.session_id = s.id
WHERE s.staged IS NOT NULL AND i.finished = 1 ORDER BY s.updated_at DESC;

-- key_in_use --
SELECT id FROM sessions WHERE key = :key AND archived_at IS NULL;

-- show_session --
UPDATE sessions SET staged = NULL, archived_at = :archived_at, row = :row WHERE id = :id;

-- entry_count --
SELECT count(*) FROM entries WHERE session_id = :id;

-- drop_extractions --
DELETE FROM extractions WHERE session_id = :id;

-- drop_some_entries --
-- A step at a time, so that others can write in between.
DELETE FROM entries WHERE position IN (SELECT position FROM entries WHERE session_id = :id ORDER BY position LIMIT :limit);

-- drop_ids --
DELETE FROM entry_ids WHERE session_id = :id;

-- drop_import --
DELETE FROM imports WHERE session_id = :id;

-- drop_session --
DELETE FROM sessions WHERE id = :id AND staged IS NOT NULL;

-- keep_document --
-- The same words again change nothing, wherever they come from.
INSERT INTO imported_documents (source, kind, name, text, at)
SELECT :source, :kind, :name, :text, :at
WHERE NOT EXISTS (SELECT 1 FROM imported_documents WHERE kind = :kind AND name = :name AND text = :text)
ON CONFLICT (tenant, source, kind, name) DO UPDATE SET text = excluded.text, at = excluded.at WHERE imported_documents.text <> excluded.text;

-- documents --
SELECT kind, name, text FROM imported_documents WHERE kind <> 'cron-import' ORDER BY source, kind, name;

-- keep_imported_job --
-- That a cron job was imported: what is remembered of it is not of the other home.
INSERT INTO imported_documents (source, kind, name, text, at) VALUES ('', 'cron-import', :id, :text, :at)
ON CONFLICT (tenant, source, kind, name) DO UPDATE SET text = excluded.text, at = excluded.at;

-- imported_job --
SELECT text FROM imported_documents WHERE source = '' AND kind = 'cron-import' AND name = :id;

-- imported_jobs --
SELECT name, text FROM imported_documents WHERE source = '' AND kind = 'cron-import' ORDER BY name;

-- next_payloads --
SELECT e.position, e.payload FROM entries e JOIN sessions s ON s.id = e.session_id
WHERE e.session_id = :id AND s.staged IS NULL AND e.position > :after ORDER BY e.position LIMIT :limit;

-- find_imported_documents --
SELECT number AS at, '', '', '', text FROM imported_documents WHERE kind <> 'cron-import';

-- set_imported_documents --
UPDATE imported_documents SET text = ?2 WHERE number = ?1;
