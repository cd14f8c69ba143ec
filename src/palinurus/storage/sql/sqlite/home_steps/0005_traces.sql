-- What the last runs did and when. Nothing depends on it: a run whose trace was lost is told by its other rows.

CREATE TABLE traces (
  ended INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order in which the runs ended
  run_id TEXT NOT NULL UNIQUE,
  session_key TEXT NOT NULL,
  status TEXT NOT NULL,
  row TEXT NOT NULL CHECK (json_valid(row))  -- ledger/trace.py: RunTrace
) STRICT;
