-- parcel_by_key --
SELECT row FROM outbox WHERE idempotency_key = :idempotency_key;

-- open_for --
-- How many wait for one recipient.
SELECT count(*) FROM outbox WHERE channel = :channel AND recipient = :recipient AND state IN ('waiting', 'sending');

-- add_parcel --
INSERT INTO outbox (id, idempotency_key, channel, recipient, state, queued_at, revision, row)
VALUES (:id, :idempotency_key, :channel, :recipient, :state, :queued_at, :revision, :row);

-- change_parcel --
-- Whoever read an older revision does not undo what was done since.
UPDATE outbox SET state = :state, revision = :revision, row = :row WHERE id = :id AND revision = :revision - 1;

-- next_parcel --
-- The one at the head of a recipient's line.
SELECT row FROM outbox WHERE channel = :channel AND recipient = :recipient AND state IN ('waiting', 'sending')
ORDER BY queued LIMIT 1;

-- open_recipients --
SELECT channel, recipient FROM outbox
WHERE state IN ('waiting', 'sending') AND (:channel = '' OR channel = :channel)
GROUP BY channel, recipient ORDER BY min(queued);

-- parcels_being_sent --
SELECT row FROM outbox WHERE state = 'sending' ORDER BY queued;

-- parcels_beginning --
-- The first two are enough. An id sorts before everything that is longer and begins with it.
SELECT row FROM outbox WHERE id >= :beginning AND id < :beginning || char(1114111) ORDER BY id LIMIT 2;

-- parcels_recent --
-- Newest first.
SELECT row FROM outbox ORDER BY queued DESC LIMIT :limit;

-- parcels_in_states --
-- The same for some states, given as a JSON array.
SELECT row FROM outbox WHERE state IN (SELECT value FROM json_each(:states)) ORDER BY queued DESC LIMIT :limit;

-- has_outbox --
SELECT name FROM sqlite_schema WHERE type = 'table' AND name = 'outbox';

-- parcel_counts --
-- What was sent or dropped needs nobody's attention.
SELECT channel, state, count(*) FROM outbox WHERE state IN ('waiting', 'sending', 'ambiguous', 'failed')
GROUP BY channel, state;

-- old_parcel --
-- Whether there is anything to forget.
SELECT id FROM outbox WHERE state IN ('sent', 'dropped') AND queued_at < :before LIMIT 1;

-- forget_parcels --
DELETE FROM outbox WHERE state IN ('sent', 'dropped') AND queued_at < :before;
