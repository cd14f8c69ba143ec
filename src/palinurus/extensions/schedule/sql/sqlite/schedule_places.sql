-- find_cron_jobs --
-- They belong to an agent and to no session: forgetting a session leaves them.
SELECT id AS at, '', 'agent:' || agent || ':', '', row FROM cron_jobs;

-- set_cron_jobs --
UPDATE cron_jobs SET row = ?2, enabled = ?2 ->> '$.enabled' IS NOT 0 WHERE id = ?1;
