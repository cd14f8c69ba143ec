-- add --
-- A reply that is counted already is not counted again.
INSERT INTO usage
  (session_key, entry_id, at, run_id, agent, provider, model, input, output, cache_read, cache_write, cost)
VALUES (:session_key, :entry_id, :at, :run_id, :agent, :provider, :model, :input, :output, :cache_read, :cache_write, :cost)
ON CONFLICT (tenant, session_key, entry_id) DO NOTHING;
