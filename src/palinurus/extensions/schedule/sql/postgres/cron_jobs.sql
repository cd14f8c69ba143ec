-- put --
INSERT INTO cron_jobs (id, agent, enabled, row) VALUES (:id, :agent, :enabled, :row)
ON CONFLICT (tenant, id) DO UPDATE SET agent = excluded.agent, enabled = excluded.enabled, row = excluded.row;

-- beginning --
-- By the beginning of the id. The first two are enough.
SELECT row FROM cron_jobs WHERE id >= :beginning AND id < :beginning || chr(1114111) ORDER BY id LIMIT 2;

-- listed --
SELECT row FROM cron_jobs WHERE (:agent = '' OR agent = :agent) AND (enabled = 1 OR :disabled = 1)
ORDER BY enabled = 0, coalesce(json_field(row, 'nextRunAtMs')::bigint, 0) = 0, json_field(row, 'nextRunAtMs')::bigint NULLS FIRST, id LIMIT :limit OFFSET :offset;

-- listed_count --
-- With what changes when one of them does: whoever reads page by page sees that the list has changed meanwhile.
SELECT count(*), coalesce(max(json_field(row, 'updatedAtMs')::bigint), 0), coalesce(sum(json_field(row, 'nextRunAtMs')::bigint), 0)::bigint FROM cron_jobs WHERE (:agent = '' OR agent = :agent) AND (enabled = 1 OR :disabled = 1);

-- totals --
SELECT count(*), sum(enabled)::bigint FROM cron_jobs;

-- next --
-- The one that is due first.
SELECT row FROM cron_jobs WHERE enabled = 1 AND json_field(row, 'nextRunAtMs')::bigint > 0 ORDER BY json_field(row, 'nextRunAtMs')::bigint, id LIMIT 1;

-- failing --
SELECT row FROM cron_jobs WHERE json_field(row, 'state', 'lastStatus') = 'failed' ORDER BY id LIMIT 10;

-- named --
-- The first two are enough.
SELECT row FROM cron_jobs WHERE lower(json_field(row, 'name') COLLATE "C") = lower(:name::text COLLATE "C") ORDER BY id LIMIT 2;
