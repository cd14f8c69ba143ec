-- find_deliveries --
SELECT queued AS at, '', json_field(payload, 'sessionKey'), json_field(payload, 'runId'), payload, outcome, to_json(trouble)::text
FROM jobs WHERE starts_with(kind, 'delivery:');

-- set_deliveries --
UPDATE jobs SET payload = ?2, outcome = ?3, trouble = ?4::json #>> '{}' WHERE queued = ?1;

-- find_jobs --
SELECT queued AS at, '', lane, idempotency_key, payload, outcome, to_json(trouble)::text
FROM jobs WHERE kind <> 'run' AND NOT starts_with(kind, 'delivery:');

-- set_jobs --
UPDATE jobs SET payload = ?2, outcome = ?3, trouble = ?4::json #>> '{}' WHERE queued = ?1;

-- find_pairings --
SELECT number AS at, '', '', '', row FROM channel_pairings;

-- set_pairings --
-- A name goes; the sender stays let in.
UPDATE channel_pairings SET row = ?2 WHERE number = ?1;
