-- pending_runs --
-- Accepted and not finished: how many, and since when.
SELECT count(*), min(accepted_at) FROM runs WHERE result IS NULL;

-- last_entry --
-- How far the transcripts go.
SELECT coalesce(max(position), 0) FROM entries;
