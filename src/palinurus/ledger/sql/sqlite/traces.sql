-- keep --
-- A run that was taken up again has one trace: the last.
INSERT OR REPLACE INTO traces (run_id, session_key, status, row) VALUES (:run_id, :session_key, :status, :row);

-- forget --
-- All but the last: a step along the primary key, cheap enough for every run.
DELETE FROM traces WHERE ended <= (SELECT max(ended) FROM traces) - :kept;

-- recent --
-- Newest first; an empty session or status means every one.
SELECT row FROM traces WHERE (:session = '' OR session_key = :session) AND (:status = '' OR status = :status)
ORDER BY ended DESC LIMIT :limit;

-- beginning --
-- The first two are enough. An id sorts before everything that is longer and begins with it.
SELECT row FROM traces WHERE run_id >= :beginning AND substr(run_id, 1, length(:beginning)) = :beginning
ORDER BY run_id LIMIT 2;
