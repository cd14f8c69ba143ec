-- save_cursor --
INSERT INTO channel_cursors (channel, account, cursor) VALUES (:channel, :account, :cursor)
ON CONFLICT (tenant, channel, account) DO UPDATE SET cursor = excluded.cursor;

-- add_preview --
INSERT INTO channel_previews (run, message, at) VALUES (:run, :message, :at) ON CONFLICT (tenant, run) DO NOTHING;
