-- find_entries --
-- A row of each: its own key, then conversation, key and run that it belongs to, then the texts.
SELECT e.position AS at, e.session_id, s.key, '', e.payload FROM entries e JOIN sessions s ON s.id = e.session_id;

-- set_entries --
UPDATE entries SET payload = ?2 WHERE position = ?1;

-- find_extractions --
SELECT x.number AS at, x.session_id, s.key, '', x.row FROM extractions x JOIN sessions s ON s.id = x.session_id;

-- set_extractions --
UPDATE extractions SET row = ?2 WHERE number = ?1;

-- find_sessions --
SELECT number AS at, id, key, '', row, extra FROM sessions;

-- set_sessions --
UPDATE sessions SET row = ?2, extra = ?3 WHERE number = ?1;
