-- last_link --
-- What the next row follows.
SELECT seq, convert_to(hash, 'UTF8') FROM audit ORDER BY seq DESC LIMIT 1;

-- links_after --
-- A piece of the chain, in its order.
SELECT * FROM audit_links WHERE seq > :after ORDER BY seq LIMIT nullif(:limit, -1);

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
