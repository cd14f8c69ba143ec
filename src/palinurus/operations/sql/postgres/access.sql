-- tokens --
-- In the order in which they were made.
SELECT row FROM tokens ORDER BY number;

-- put_token --
-- A token that is rotated, revoked or used stays the same token.
INSERT INTO tokens (id, digest, row) VALUES (:id, :digest, :row)
ON CONFLICT (tenant, id) DO UPDATE SET digest = excluded.digest, row = excluded.row;

-- devices --
-- In the order in which they first asked.
SELECT row FROM devices ORDER BY number;

-- put_device --
INSERT INTO devices (id, row) VALUES (:id, :row) ON CONFLICT (tenant, id) DO UPDATE SET row = excluded.row;
