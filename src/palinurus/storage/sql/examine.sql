-- pending_runs --
-- Accepted and not finished: how many, and since when.
SELECT count(*), min(accepted_at) FROM runs WHERE result IS NULL;

-- any_session --
-- Whether an agent has ever been spoken to.
SELECT EXISTS (SELECT 1 FROM sessions WHERE agent = :agent);

-- last_entry --
-- How far the transcripts go.
SELECT coalesce(max(position), 0) FROM entries;
