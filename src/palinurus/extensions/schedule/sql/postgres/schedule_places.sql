-- find_cron_jobs --
-- They belong to an agent and to no session: forgetting a session leaves them.
SELECT id AS at, '', 'agent:' || agent || ':', '', row FROM cron_jobs;

-- set_cron_jobs --
-- One that has lost words is disabled.
UPDATE cron_jobs SET row = ?2, enabled = 0 WHERE id = ?1;
