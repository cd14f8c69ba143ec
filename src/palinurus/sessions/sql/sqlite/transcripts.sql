-- position --
SELECT position, entry_id FROM read_up_to;

-- set_position --
UPDATE read_up_to SET position = :position, entry_id = :entry_id;

-- add_said --
INSERT INTO said (position, session_id, session_key, agent, entry_id, role, timestamp, text)
VALUES (:position, :session_id, :session_key, :agent, :entry_id, :role, :timestamp, :text);

-- add_words --
INSERT INTO said_words (rowid, words) VALUES (:position, :words);

-- find --
-- Best matches; bm25 is negative, smaller is better. Of equals the newer comes first. What is still being brought in
-- from another home is indexed and not shown.
SELECT s.session_id, s.session_key, s.entry_id, s.role, s.timestamp, s.text, -bm25(said_words) AS score
FROM said_words JOIN said s ON s.position = said_words.rowid
WHERE said_words MATCH :query AND (:agent = '' OR s.agent = :agent)
  AND (:keys IS NULL OR s.session_key IN (SELECT value FROM json_each(:keys)))
  AND s.session_id NOT IN (SELECT value FROM json_each(:hidden))
ORDER BY score DESC, s.position DESC LIMIT :limit;
