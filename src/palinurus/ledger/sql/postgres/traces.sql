-- keep --
-- A run that was taken up again has one trace: the last.
INSERT INTO traces (ended, run_id, session_key, status, row)
SELECT coalesce(max(ended), 0) + 1, :run_id, :session_key, :status, :row FROM traces
ON CONFLICT (tenant, run_id) DO UPDATE
SET ended = excluded.ended, session_key = excluded.session_key, status = excluded.status, row = excluded.row;

-- beginning --
-- The first two are enough. An id sorts before everything that is longer and begins with it.
SELECT row FROM traces WHERE run_id >= :beginning AND starts_with(run_id, :beginning)
ORDER BY run_id LIMIT 2;
