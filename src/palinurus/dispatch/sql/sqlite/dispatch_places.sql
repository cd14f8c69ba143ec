-- find_runs --
SELECT queued AS at, '', lane, id, payload, outcome FROM jobs WHERE kind = 'run';

-- set_runs --
UPDATE jobs SET payload = ?2, outcome = ?3 WHERE queued = ?1;

-- find_deliveries --
SELECT queued AS at, '', payload ->> '$.sessionKey', payload ->> '$.runId', payload, outcome, json_quote(trouble)
FROM jobs WHERE kind GLOB 'delivery:*';

-- set_deliveries --
UPDATE jobs SET payload = ?2, outcome = ?3, trouble = ?4 ->> '$' WHERE queued = ?1;

-- find_jobs --
SELECT queued AS at, '', lane, idempotency_key, payload, outcome, json_quote(trouble)
FROM jobs WHERE kind <> 'run' AND kind NOT GLOB 'delivery:*';

-- set_jobs --
UPDATE jobs SET payload = ?2, outcome = ?3, trouble = ?4 ->> '$' WHERE queued = ?1;

-- find_pairings --
SELECT rowid AS at, '', '', '', row FROM channel_pairings;

-- set_pairings --
-- A name goes; the sender stays let in.
UPDATE channel_pairings SET row = ?2 WHERE rowid = ?1;
