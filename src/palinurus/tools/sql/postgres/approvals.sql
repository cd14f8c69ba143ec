-- add --
-- Ids are short, so one may have been used before.
INSERT INTO approvals (id, asked_at, status, row) VALUES (:id, :asked_at, :status, :row) ON CONFLICT (tenant, id) DO NOTHING;

-- pending --
-- Oldest first.
SELECT row FROM approvals WHERE status = 'pending' ORDER BY asked_at, number;

-- recent --
-- Newest first, whatever became of them.
SELECT row FROM approvals ORDER BY asked_at DESC, number DESC LIMIT :limit;
