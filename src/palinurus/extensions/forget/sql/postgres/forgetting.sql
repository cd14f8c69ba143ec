-- runs_in --
-- Messages that were accepted for these conversations: an entry has the id of its run.
SELECT e.id FROM entries e JOIN jobs r ON r.id = e.id AND r.kind = 'run'
WHERE e.session_id IN (SELECT json_array_elements_text(:sessions::json));

-- text_columns --
-- Every place of the database that can hold words.
SELECT c.table_name, c.column_name FROM information_schema.columns c
JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND c.data_type = 'text'
  AND c.column_name <> 'tenant'
ORDER BY c.table_name, c.ordinal_position;

-- begin_forgetting --
INSERT INTO forgettings (id, at, open, row) VALUES (:id, :at, 1, :row)
ON CONFLICT (tenant, id) DO UPDATE SET open = 1;

-- conversations_of --
SELECT DISTINCT s.id, s.key FROM entries e JOIN sessions s ON s.id = e.session_id
WHERE e.position IN (SELECT json_array_elements_text(:keys::json)::bigint);

-- first_said --
SELECT min(json_field(payload, 'timestamp') COLLATE "C") FROM entries
WHERE position IN (SELECT json_array_elements_text(:keys::json)::bigint);

-- chosen --
-- Those rows of a query that have one of these keys; that query stands where the one in parentheses is.
SELECT * FROM (SELECT '' AS at) AS found WHERE at::text IN (SELECT json_array_elements_text(:keys::json));
