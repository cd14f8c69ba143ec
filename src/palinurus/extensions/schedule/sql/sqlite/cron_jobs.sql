-- put --
INSERT INTO cron_jobs (id, agent, enabled, row) VALUES (:id, :agent, :enabled, :row)
ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, enabled = excluded.enabled, row = excluded.row;

-- find --
SELECT row FROM cron_jobs WHERE id = :id;

-- beginning --
-- By the beginning of the id. The first two are enough.
SELECT row FROM cron_jobs WHERE id >= :beginning AND id < :beginning || char(1114111) ORDER BY id LIMIT 2;

-- all --
SELECT row FROM cron_jobs ORDER BY id;

-- count --
SELECT count(*) FROM cron_jobs;

-- remove --
DELETE FROM cron_jobs WHERE id = :id;

-- enabled --
SELECT id FROM cron_jobs WHERE enabled = 1;
