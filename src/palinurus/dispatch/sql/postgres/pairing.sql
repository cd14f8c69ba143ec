-- list --
-- In the order in which they first asked.
SELECT row FROM channel_pairings ORDER BY number;

-- put --
INSERT INTO channel_pairings (channel, account, sender, status, row)
VALUES (:channel, :account, :sender, :status, :row)
ON CONFLICT (tenant, channel, account, sender) DO UPDATE SET status = excluded.status, row = excluded.row;

-- of_account --
-- Those who wait, and those who were rejected a while ago.
SELECT row FROM channel_pairings WHERE channel = :channel AND account = :account AND status <> 'approved' ORDER BY number;
