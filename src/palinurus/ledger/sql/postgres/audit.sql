-- last_link --
-- What the next row follows.
SELECT seq, convert_to(hash, 'UTF8') FROM audit ORDER BY seq DESC LIMIT 1;

-- add_link --
-- One row at the end of the chain.
INSERT INTO audit (seq, at, kind, run_id, session_key, tool, call_id, outcome, digest, previous, hash)
VALUES (:seq, :at, :kind, :run_id, :session_key, :tool, :call_id, :outcome, :digest, :previous, :hash);

-- add_details --
-- What may be erased of it.
INSERT INTO audit_details (seq, salt, details) VALUES (:seq, :salt, :details);

-- links_after --
-- A piece of the chain, in its order.
SELECT * FROM audit_links WHERE seq > :after ORDER BY seq LIMIT nullif(:limit, -1);

-- stray_details --
-- Details whose row is gone: the end was cut off in haste.
SELECT min(seq) FROM audit_details WHERE NOT EXISTS (SELECT 1 FROM audit WHERE audit.seq = audit_details.seq);

-- newest_links --
-- The newest rows of everybody.
SELECT audit_links.* FROM audit JOIN audit_links ON audit_links.seq = audit.seq
WHERE audit.seq < :before AND (:tool = '' OR audit.tool = :tool) AND starts_with(audit.run_id, :run)
ORDER BY audit.seq DESC LIMIT :limit;

-- newest_links_of_session --
-- The same for one session, by its index.
SELECT audit_links.* FROM audit JOIN audit_links ON audit_links.seq = audit.seq
WHERE audit.session_key = :session AND audit.seq < :before AND (:tool = '' OR audit.tool = :tool)
  AND starts_with(audit.run_id, :run)
ORDER BY audit.seq DESC LIMIT :limit;

-- commands --
-- Commands that were asked for, newest first: those that ran and those that somebody or something decided about.
SELECT audit_links.* FROM audit JOIN audit_links ON audit_links.seq = audit.seq
WHERE audit.tool = 'exec' AND audit.kind IN ('call', 'decision')
  AND starts_with(audit.session_key, :prefix)
ORDER BY audit.seq DESC;

-- erase_details --
-- The list of an erasure is what tells it from a loss, so it stays.
DELETE FROM audit_details
WHERE seq = :seq AND NOT EXISTS (SELECT 1 FROM audit WHERE audit.seq = :seq AND kind = 'erase');
