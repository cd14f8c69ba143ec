-- add --
-- A reply that is counted already is not counted again.
INSERT INTO usage
  (session_key, entry_id, at, run_id, agent, provider, model, input, output, cache_read, cache_write, cost)
VALUES (:session_key, :entry_id, :at, :run_id, :agent, :provider, :model, :input, :output, :cache_read, :cache_write, :cost)
ON CONFLICT (tenant, session_key, entry_id) DO NOTHING;

-- since --
-- The calls from a moment on; an empty agent means every agent.
SELECT entry_id, at, run_id, session_key, agent, provider, model, input, output, cache_read, cache_write, cost
FROM usage WHERE at >= :since AND (:agent = '' OR agent = :agent) ORDER BY at;

-- of_session --
-- The same for one session: its rows lie together, so years of other ones are not read.
SELECT entry_id, at, run_id, session_key, agent, provider, model, input, output, cache_read, cache_write, cost
FROM usage WHERE session_key = :session AND at >= :since AND (:agent = '' OR agent = :agent) ORDER BY at;

-- of_run --
SELECT entry_id, at, run_id, session_key, agent, provider, model, input, output, cache_read, cache_write, cost
FROM usage WHERE session_key = :session AND run_id = :run;
