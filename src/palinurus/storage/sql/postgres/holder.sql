-- next_epoch --
-- Whoever wrote for this tenant before can no longer commit.
INSERT INTO holder (epoch) VALUES (1) ON CONFLICT (tenant) DO UPDATE SET epoch = holder.epoch + 1 RETURNING epoch;

-- current_epoch --
-- Asked inside every transaction, behind a lock that whoever takes the epoch waits for.
SELECT epoch FROM holder;

-- unfinished_runs --
-- Whether a process that died has left a run or a question.
SELECT EXISTS (SELECT 1 FROM jobs WHERE kind = 'run' AND state IN ('waiting', 'running', 'retry'))
    OR EXISTS (SELECT 1 FROM approvals WHERE status = 'pending');

-- open_jobs --
SELECT EXISTS (SELECT 1 FROM jobs WHERE state IN ('waiting', 'running', 'retry') AND kind <> 'run');

-- cron_jobs --
-- Whether there are any: then a process that stays has to look after them.
SELECT EXISTS (SELECT 1 FROM cron_jobs);

-- counts --
-- Sessions and entries.
SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM entries);
