-- Who wrote to an agent and was not known, and who of them may write since. A sender is known by channel, account and id,
-- in direct chats only.
CREATE TABLE channel_pairings (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  sender TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'rejected')),
  row TEXT NOT NULL,
  PRIMARY KEY (channel, account, sender)
) STRICT;
