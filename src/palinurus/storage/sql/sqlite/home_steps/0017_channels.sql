-- Up to where an account of a channel has read, as its network says it.
CREATE TABLE channel_cursors (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  cursor TEXT NOT NULL,
  PRIMARY KEY (channel, account)
) STRICT, WITHOUT ROWID;

-- Messages that show a reply before it is complete: the reply takes their place, whichever process sends it.
CREATE TABLE channel_previews (
  run TEXT PRIMARY KEY,
  message TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
