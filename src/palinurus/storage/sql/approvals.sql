-- add_approval --
-- Ids are short, so one may have been used before.
INSERT INTO approvals (id, asked_at, status, row) VALUES (:id, :asked_at, :status, :row) ON CONFLICT (id) DO NOTHING;

-- approval --
SELECT row FROM approvals WHERE id = :id;

-- settle_approval --
-- Decided once: the second one changes nothing.
UPDATE approvals SET status = :status, row = :row WHERE id = :id AND status = 'pending';

-- approvals_pending --
-- Oldest first.
SELECT row FROM approvals WHERE status = 'pending' ORDER BY asked_at, rowid;

-- approvals_recent --
-- Newest first, whatever became of them.
SELECT row FROM approvals ORDER BY asked_at DESC, rowid DESC LIMIT :limit;

-- add_grant --
INSERT INTO grants (id, created_at, revoked_at, row) VALUES (:id, :created_at, :revoked_at, :row)
ON CONFLICT (id) DO NOTHING;

-- grant --
SELECT row FROM grants WHERE id = :id;

-- change_grant --
-- It was revoked or used.
UPDATE grants SET revoked_at = :revoked_at, row = :row WHERE id = :id;

-- grants_unrevoked --
-- There are dozens, not thousands: where and how long each holds is read from its row.
SELECT row FROM grants WHERE revoked_at IS NULL ORDER BY created_at, rowid;

-- grants_all --
-- Newest first.
SELECT row FROM grants ORDER BY created_at DESC, rowid DESC;
