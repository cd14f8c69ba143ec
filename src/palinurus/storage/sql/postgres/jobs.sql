-- add_job --
-- The first under an idempotency key of its kind stays. `most` is how many may be open in a lane; 0: any number.
INSERT INTO jobs (id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence,
  outcome, trouble, doubtful_at, retried_at, retry_key)
SELECT :id, :kind, :lane, :idempotency_key, :payload, :added_at, :due_at, :state, :attempts, :lease_until, :fence,
  :outcome, :trouble, :doubtful_at, :retried_at, :retry_key
WHERE :most = 0 OR :most > (
  SELECT count(*) FROM (
    SELECT 1 FROM jobs WHERE kind = :kind AND lane = :lane AND state IN ('waiting', 'running', 'retry') LIMIT :most
  )
)
ON CONFLICT (tenant, kind, idempotency_key) DO NOTHING;

-- next_job --
-- The one at the head of a lane. Nobody overtakes what is being done or tried again; then comes what is due, in the
-- order in which it was added, and then what will be due first.
SELECT id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence, outcome, trouble,
  doubtful_at, retried_at, retry_key
FROM jobs WHERE kind = :kind AND lane = :lane AND state IN ('waiting', 'running', 'retry')
ORDER BY state = 'running' DESC, state = 'retry' DESC, greatest(due_at, :now), queued LIMIT 1;

-- open_kinds --
-- Kinds of which anything is open. Each is one step in the index, however many jobs it has. Runs are not for the runner:
-- dispatch/lanes.py has them.
WITH RECURSIVE kinds (kind) AS (
  SELECT min(kind) FROM jobs WHERE state IN ('waiting', 'running', 'retry') AND kind <> 'run'
  UNION ALL
  SELECT (
    SELECT min(kind) FROM jobs
    WHERE state IN ('waiting', 'running', 'retry') AND kind <> 'run' AND kind > kinds.kind
  ) FROM kinds WHERE kind IS NOT NULL
)
SELECT kind FROM kinds WHERE kind IS NOT NULL;

-- due_lanes --
-- Where something of a kind is due or was left behind; what is due first comes first.
SELECT lane FROM jobs
WHERE kind = :kind AND kind <> 'run' AND state IN ('waiting', 'running', 'retry')
  AND CASE WHEN state = 'running' THEN lease_until ELSE due_at END <= :now
GROUP BY lane ORDER BY min(CASE WHEN state = 'running' THEN lease_until ELSE due_at END), min(queued) LIMIT :most;

-- stuck_lanes --
-- Where something of a kind waits longer than anything should: the clock was set back.
SELECT lane FROM jobs
WHERE kind = :kind AND kind <> 'run' AND state = 'retry' AND due_at > :now + :longest
GROUP BY lane ORDER BY min(due_at), min(queued) LIMIT :most;

-- next_due --
-- When there will be something to do of a kind that is not to be done yet.
SELECT min(CASE WHEN state = 'running' THEN lease_until ELSE due_at END) FROM jobs
WHERE kind = :kind AND kind <> 'run' AND state IN ('waiting', 'running', 'retry')
  AND CASE WHEN state = 'running' THEN lease_until ELSE due_at END > :now;

-- jobs_beginning --
-- Of some kind, by the beginning of the id. The first two are enough. An id sorts before everything that is longer and
-- begins with it.
SELECT id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence, outcome, trouble,
  doubtful_at, retried_at, retry_key
FROM jobs WHERE id >= :beginning AND id < :beginning || chr(1114111) AND kind <> 'run' AND glob_matches(kind, :kind)
ORDER BY id LIMIT 2;

-- jobs_of_lane --
-- Newest due time first, without what waits for a later one.
SELECT id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence, outcome, trouble,
  doubtful_at, retried_at, retry_key
FROM jobs WHERE kind = :kind AND kind <> 'run' AND lane = :lane
  AND (due_at <= :until OR state <> 'waiting')
ORDER BY due_at DESC, queued DESC LIMIT :limit;

-- jobs_between --
-- Of a kind, by their due time.
SELECT id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence, outcome, trouble,
  doubtful_at, retried_at, retry_key
FROM jobs WHERE kind = :kind AND kind <> 'run' AND due_at >= :since AND due_at < :until ORDER BY due_at DESC, queued DESC
LIMIT :limit;

-- recent_jobs --
-- Newest first; of some kinds and states, given as JSON arrays of patterns and names, or of all.
SELECT id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence, outcome, trouble,
  doubtful_at, retried_at, retry_key
FROM jobs
WHERE kind <> 'run' AND (:states = '[]' OR state IN (SELECT json_array_elements_text(:states::json)))
  AND (:kinds = '[]' OR EXISTS (SELECT 1 FROM json_array_elements_text(:kinds::json) AS pattern WHERE glob_matches(jobs.kind, pattern)))
ORDER BY queued DESC LIMIT :limit;

-- has_queue --
-- A home of an older release has another table, or none.
SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexname = 'jobs_but_runs';

-- job_counts --
SELECT kind, state, count(*) FROM jobs WHERE kind <> 'run'
GROUP BY kind, state ORDER BY kind, state;

-- old_kinds --
-- Kinds of which there is anything to forget. What is known of runs is not forgotten, nor what was added of late for a
-- due time long ago: it was caught up on.
WITH RECURSIVE kinds (kind) AS (
  SELECT min(kind) FROM jobs WHERE kind <> 'run'
  UNION ALL
  SELECT (SELECT min(kind) FROM jobs WHERE kind <> 'run' AND kind > kinds.kind)
  FROM kinds WHERE kind IS NOT NULL
)
SELECT kind FROM kinds WHERE EXISTS (
  SELECT 1 FROM jobs
  WHERE jobs.kind = kinds.kind AND jobs.kind <> 'run' AND due_at < :before AND added_at < :before
    AND state IN ('done', 'dropped', 'missed')
);

-- forget_jobs --
DELETE FROM jobs WHERE queued IN (
  SELECT queued FROM jobs
  WHERE kind = :kind AND kind <> 'run' AND due_at < :before AND added_at < :before
    AND state IN ('done', 'dropped', 'missed') LIMIT :most
);

-- drop_waiting --
-- Those of the rows, given as a JSON array, that nobody has begun.
UPDATE jobs SET state = 'dropped' WHERE queued IN (SELECT json_array_elements_text(:keys::json)::bigint) AND state IN ('waiting', 'retry');
