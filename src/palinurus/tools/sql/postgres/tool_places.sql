-- find_approvals --
-- One that still waits is left to whoever has to decide.
SELECT number AS at, '', json_field(row, 'sessionKey'), json_field(row, 'runId'), row FROM approvals WHERE status <> 'pending';

-- drop_approvals --
DELETE FROM approvals WHERE number = ?1;

-- find_grants --
SELECT number AS at, '', json_field(row, 'sessionKey'), '', row FROM grants;

-- drop_grants --
DELETE FROM grants WHERE number = ?1;
