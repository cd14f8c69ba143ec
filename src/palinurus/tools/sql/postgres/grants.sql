-- add --
INSERT INTO grants (id, created_at, revoked_at, row) VALUES (:id, :created_at, :revoked_at, :row)
ON CONFLICT (tenant, id) DO NOTHING;

-- unrevoked --
-- There are dozens, not thousands: where and how long each holds is read from its row.
SELECT row FROM grants WHERE revoked_at IS NULL ORDER BY created_at, number;

-- all --
-- Newest first.
SELECT row FROM grants ORDER BY created_at DESC, number DESC;
