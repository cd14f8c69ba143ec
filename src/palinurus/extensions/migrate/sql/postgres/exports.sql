-- kept_sessions --
-- All conversations that are shown, or one, with how much was said in them.
SELECT s.row, s.extra, EXISTS (SELECT 1 FROM imports i WHERE i.session_id = s.id AND i.source NOT LIKE 'palinurus:%'),
  (SELECT sum(octet_length(e.payload))::bigint FROM entries e WHERE e.session_id = s.id)
FROM sessions s WHERE s.staged IS NULL AND (:id = '' OR s.id = :id) ORDER BY s.number;
