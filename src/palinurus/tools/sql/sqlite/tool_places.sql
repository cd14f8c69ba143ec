-- find_approvals --
-- One that still waits is left to whoever has to decide.
SELECT rowid AS at, '', row ->> '$.sessionKey', row ->> '$.runId', row FROM approvals WHERE status <> 'pending';

-- drop_approvals --
DELETE FROM approvals WHERE rowid = ?1;

-- find_grants --
SELECT rowid AS at, '', row ->> '$.sessionKey', '', row FROM grants;

-- drop_grants --
DELETE FROM grants WHERE rowid = ?1;
