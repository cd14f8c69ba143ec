-- next_epoch --
-- Whoever had the file before can no longer commit.
UPDATE holder SET epoch = epoch + 1 RETURNING epoch;

-- current_epoch --
-- Asked inside every transaction, so the answer cannot change before it ends.
SELECT epoch FROM holder;
