-- find_audit_details --
-- What an erasure says of itself stays.
SELECT d.seq AS at, '', a.session_key, a.run_id, d.details
FROM audit_details d JOIN audit a ON a.seq = d.seq WHERE a.kind <> 'erase';

-- find_traces --
SELECT ended AS at, '', session_key, run_id, row FROM traces;

-- drop_traces --
-- Nothing leans on such a row.
DELETE FROM traces WHERE ended = ?1;
