-- lock --
-- Whoever migrates: until the end of the transaction.
SELECT pg_advisory_xact_lock(:number);

-- has_series --
SELECT to_regclass(format('%I.steps_taken', current_schema())) IS NOT NULL;

-- taken --
SELECT max(number) FROM steps_taken WHERE series = :series;

-- take --
INSERT INTO steps_taken (series, number, name) VALUES (:series, :number, :name);

-- role --
SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user;

-- policies --
-- Each table with its policies: whether they hold for its owner, how many there are, and what the first says.
SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
  (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid),
  (SELECT pg_get_expr(p.polqual, c.oid) FROM pg_policy p
   WHERE p.polrelid = c.oid AND p.polcmd = '*' AND p.polroles = '{0}' ORDER BY p.oid LIMIT 1),
  (SELECT pg_get_expr(p.polwithcheck, c.oid) FROM pg_policy p
   WHERE p.polrelid = c.oid AND p.polcmd = '*' AND p.polroles = '{0}' ORDER BY p.oid LIMIT 1)
FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
ORDER BY c.relname;

-- size --
-- Bytes of all tables and indexes of the schema.
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p');
