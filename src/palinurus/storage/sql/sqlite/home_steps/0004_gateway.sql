-- Who may come in by the gateway, and what is on its way out.

-- Of a token only the digest is kept: whoever reads this file cannot use it.
CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,        -- sha256 of the token
  row TEXT NOT NULL CHECK (json_valid(row))  -- operations/access.py: Token
) STRICT;

CREATE TABLE devices (
  id TEXT PRIMARY KEY,                -- sha256 of the device's public key
  row TEXT NOT NULL CHECK (json_valid(row))  -- operations/access.py: PairedDevice
) STRICT;

-- A reply or message to be carried out. A row is the promise that it will be delivered or its fate shown (promise 3).
CREATE TABLE outbox (
  queued INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  idempotency_key TEXT NOT NULL UNIQUE,
  channel TEXT NOT NULL,
  recipient TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'ambiguous', 'failed', 'dropped')),
  queued_at INTEGER NOT NULL,
  revision INTEGER NOT NULL,          -- goes up with each change
  row TEXT NOT NULL CHECK (json_valid(row))  -- dispatch/parcel.py: Parcel
) STRICT;

-- Parcels to one recipient go out in their order. The index holds only those that have yet to.
CREATE INDEX outbox_lines ON outbox (channel, recipient, queued) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_by_state ON outbox (state, queued);
