-- next_epoch --
-- Whoever wrote for this tenant before can no longer commit.
INSERT INTO holder (epoch) VALUES (1) ON CONFLICT (tenant) DO UPDATE SET epoch = holder.epoch + 1 RETURNING epoch;
