-- What hands have done, what was asked before they did it, and what a person has allowed for longer.

-- The chain covers digests only; arguments and results stand in audit_details and may be erased.
CREATE TABLE audit (
  seq INTEGER PRIMARY KEY,            -- 1, 2, 3, … without a gap
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  run_id TEXT NOT NULL,
  session_key TEXT NOT NULL,
  tool TEXT NOT NULL,
  call_id TEXT NOT NULL,
  outcome TEXT NOT NULL,
  digest TEXT NOT NULL,
  previous TEXT NOT NULL,
  hash TEXT NOT NULL
) STRICT;

-- Within a session or a tool the rows of an index lie in the order of seq.
CREATE INDEX audit_by_session ON audit (session_key);
CREATE INDEX audit_by_tool ON audit (tool);

CREATE TRIGGER audit_grows_at_its_end BEFORE INSERT ON audit
WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM audit)
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TRIGGER audit_is_never_removed BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

-- No check whether they are good JSON: SQLite takes none that is nested deeper than it likes, and what a model asked
-- for is written down whatever it is.
CREATE TABLE audit_details (
  seq INTEGER PRIMARY KEY REFERENCES audit (seq),
  salt TEXT NOT NULL,
  details TEXT NOT NULL
) STRICT;

CREATE TRIGGER audit_details_are_never_changed BEFORE UPDATE ON audit_details
BEGIN SELECT RAISE(ABORT, 'the details of the audit log can be erased, not changed'); END;

-- Rows with their details, as bytes: a text that is none any more can still be read and judged.
CREATE VIEW audit_links AS
SELECT audit.seq AS seq, CAST(at AS BLOB) AS at, CAST(kind AS BLOB) AS kind, CAST(run_id AS BLOB) AS run_id,
  CAST(session_key AS BLOB) AS session_key, CAST(tool AS BLOB) AS tool, CAST(call_id AS BLOB) AS call_id,
  CAST(outcome AS BLOB) AS outcome, CAST(digest AS BLOB) AS digest, CAST(previous AS BLOB) AS previous,
  CAST(hash AS BLOB) AS hash, CAST(salt AS BLOB) AS salt, CAST(details AS BLOB) AS details
FROM audit LEFT JOIN audit_details ON audit_details.seq = audit.seq;

CREATE TABLE approvals (
  id TEXT PRIMARY KEY,
  asked_at INTEGER NOT NULL,
  status TEXT NOT NULL,
  row TEXT NOT NULL CHECK (json_valid(row))  -- tools/approvals/approval.py: Approval
) STRICT;

CREATE INDEX approvals_pending ON approvals (asked_at) WHERE status = 'pending';
CREATE INDEX approvals_by_time ON approvals (asked_at);

CREATE TABLE grants (
  id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL,
  revoked_at INTEGER,
  row TEXT NOT NULL CHECK (json_valid(row))  -- tools/grants/grants.py: Grant
) STRICT;
