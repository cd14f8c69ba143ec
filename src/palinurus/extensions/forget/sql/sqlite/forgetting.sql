-- sessions_called --
-- All conversations under a key, or the one with an id.
SELECT id, key FROM sessions WHERE key = :which OR id = :which;

-- runs_in --
-- Messages that were accepted for these conversations: an entry has the id of its run.
SELECT e.id FROM entries e JOIN jobs r ON r.id = e.id AND r.kind = 'run'
WHERE e.session_id IN (SELECT value FROM json_each(:sessions));

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
SELECT s.row, (SELECT e.id FROM entries e WHERE e.session_id = s.id ORDER BY e.position DESC LIMIT 1),
  (SELECT count(*) FROM entries e WHERE e.session_id = s.id)
FROM sessions s WHERE s.id = :id;

-- keep_session --
UPDATE sessions SET row = :row WHERE id = :id;

-- entries_in_all --
SELECT count(*) FROM entries;

-- conversations_of --
SELECT DISTINCT s.id, s.key FROM entries e JOIN sessions s ON s.id = e.session_id
WHERE e.position IN (SELECT value FROM json_each(:keys));

-- first_said --
SELECT min(payload ->> '$.timestamp') FROM entries
WHERE position IN (SELECT value FROM json_each(:keys)) AND json_valid(payload);

-- chosen --
-- Those rows of a query that have one of these keys; that query stands where the one in parentheses is.
SELECT * FROM (SELECT '' AS at) AS found WHERE at IN (SELECT value FROM json_each(:keys));
