-- Cron jobs and heartbeats. Each due time of one is a row of `jobs` of the kind 'schedule.due', with the cron job as its lane.
CREATE TABLE cron_jobs (
  id TEXT PRIMARY KEY,
  agent TEXT NOT NULL,
  enabled INTEGER NOT NULL,
  row TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What is due first of a kind, among a hundred thousand.
CREATE INDEX jobs_due ON jobs (kind, iif(state = 'running', lease_until, due_at))
WHERE state IN ('waiting', 'running', 'retry') AND kind <> 'run';
CREATE INDEX jobs_retry ON jobs (kind, due_at) WHERE state = 'retry' AND kind <> 'run';
-- What has happened in a lane, newest first.
CREATE INDEX jobs_of_lane ON jobs (kind, lane, due_at) WHERE kind <> 'run';
CREATE INDEX jobs_by_due ON jobs (kind, due_at) WHERE kind <> 'run';
