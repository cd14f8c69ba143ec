-- adopt --
INSERT INTO imports (source, session_id, entries, digest, finished, at) VALUES (:source, :id, :entries, :digest, 1, :at)
ON CONFLICT (tenant, source) DO UPDATE SET entries = excluded.entries, digest = excluded.digest, at = excluded.at;

-- sort_ids --
-- What has one id stands in the order in which it was said.
-- No table is made: a long read holds up nobody here.
SELECT set_config('pal.sorted', :id, true);

-- sorted_ids --
SELECT id, position, type FROM entries WHERE session_id = current_setting('pal.sorted', true) ORDER BY id, position;

-- set_imported_row --
-- What SQLite does not take for JSON is not kept beside it; the transcript is.
UPDATE sessions SET row = :row, extra = CASE WHEN :extra::text IS JSON THEN :extra END, updated_at = :updated_at WHERE id = :id;

-- keep_document --
-- The same words again change nothing, wherever they come from.
INSERT INTO imported_documents (source, kind, name, text, at)
SELECT :source, :kind, :name, :text, :at
WHERE NOT EXISTS (SELECT 1 FROM imported_documents WHERE kind = :kind AND name = :name AND text = :text)
ON CONFLICT (tenant, source, kind, name) DO UPDATE SET text = excluded.text, at = excluded.at WHERE imported_documents.text <> excluded.text;

-- keep_imported_job --
-- That a cron job was imported: what is remembered of it is not of the other home.
INSERT INTO imported_documents (source, kind, name, text, at) VALUES ('', 'cron-import', :id, :text, :at)
ON CONFLICT (tenant, source, kind, name) DO UPDATE SET text = excluded.text, at = excluded.at;

-- find_imported_documents --
SELECT number AS at, '', '', '', text FROM imported_documents WHERE kind <> 'cron-import';

-- set_imported_documents --
UPDATE imported_documents SET text = ?2 WHERE number = ?1;
