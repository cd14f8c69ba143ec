-- Accepted messages and messages to people are jobs like any other. Runs are of the kind 'run', held by the process that
-- accepted them; a delivery is of the kind 'delivery:<channel>', with its recipient as the lane.
DROP INDEX jobs_by_state;

INSERT INTO jobs (id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence,
  outcome, trouble, doubtful_at, retried_at, retry_key)
SELECT run_id, 'run', session_key, idempotency_key, inbound, accepted_at, accepted_at,
  iif(result IS NULL, 'running', 'done'), attempts + 1, 0, attempts + 1, result, '', 0, 0, ''
FROM runs ORDER BY accepted;

-- What was tried and waits is 'retry': nobody overtakes it.
INSERT INTO jobs (id, kind, lane, idempotency_key, payload, added_at, due_at, state, attempts, lease_until, fence,
  outcome, trouble, doubtful_at, retried_at, retry_key)
SELECT id, 'delivery:' || channel, recipient, idempotency_key,
  json_object(
    'channel', channel, 'to', recipient, 'text', coalesce(row ->> '$.text', ''),
    'sessionKey', coalesce(row ->> '$.sessionKey', ''), 'runId', coalesce(row ->> '$.runId', ''),
    'account', coalesce(row ->> '$.account', ''), 'thread', coalesce(row ->> '$.thread', '')
  ),
  queued_at, coalesce(row ->> '$.dueAt', queued_at),
  CASE state
    WHEN 'waiting' THEN iif(coalesce(row ->> '$.attempts', 0) > 0, 'retry', 'waiting')
    WHEN 'sending' THEN 'running'
    WHEN 'sent' THEN 'done'
    ELSE state
  END,
  coalesce(row ->> '$.attempts', 0), 0, revision,
  iif(state = 'sent', json_quote(coalesce(row ->> '$.receipt', '')), NULL), coalesce(row ->> '$.trouble', ''),
  coalesce(row ->> '$.doubtfulAt', 0), coalesce(row ->> '$.retriedAt', 0), coalesce(row ->> '$.retryKey', '')
FROM outbox ORDER BY queued;

DROP TABLE runs;
DROP TABLE outbox;

-- There are far more runs than other jobs, and none of those who list or count jobs asks for them.
CREATE INDEX jobs_but_runs ON jobs (kind, state, queued) WHERE kind <> 'run';
