-- cursor --
SELECT cursor FROM channel_cursors WHERE channel = :channel AND account = :account;

-- save_cursor --
INSERT INTO channel_cursors (channel, account, cursor) VALUES (:channel, :account, :cursor)
ON CONFLICT (tenant, channel, account) DO UPDATE SET cursor = excluded.cursor;

-- preview --
SELECT message FROM channel_previews WHERE run = :run;

-- add_preview --
INSERT INTO channel_previews (run, message, at) VALUES (:run, :message, :at) ON CONFLICT (tenant, run) DO NOTHING;

-- remove_preview --
DELETE FROM channel_previews WHERE run = :run;

-- forget_previews --
-- Of runs whose reply was never sent.
DELETE FROM channel_previews WHERE at < :before;
