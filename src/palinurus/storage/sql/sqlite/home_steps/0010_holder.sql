-- Who may write: each process that opens this file to write takes the next number, and every commit checks that the
-- number is still its own. The lock file keeps honest processes apart; this holds when that file was removed.
CREATE TABLE holder (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  epoch INTEGER NOT NULL
) STRICT;
INSERT INTO holder (one, epoch) VALUES (1, 0);
