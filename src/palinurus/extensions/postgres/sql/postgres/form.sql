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

-- columns --
-- Each table with its columns but the tenant, in which order its rows are, and a column that counts, if it has one.
SELECT c.relname, json_agg(a.attname ORDER BY a.attnum)::text,
  (SELECT json_agg(k.attname ORDER BY p.place)::text
   FROM pg_index i CROSS JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS p(number, place)
   JOIN pg_attribute k ON k.attrelid = c.oid AND k.attnum = p.number
   WHERE i.indrelid = c.oid AND i.indisprimary AND k.attname <> 'tenant'),
  min(a.attname::text) FILTER (WHERE a.attidentity <> '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'tenant'
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
GROUP BY c.oid, c.relname ORDER BY c.relname;

-- transfer --
SELECT source, finished FROM transfers;

-- begin_transfer --
INSERT INTO transfers (source, finished) VALUES (:source, 0) ON CONFLICT (tenant) DO NOTHING;

-- end_transfer --
UPDATE transfers SET finished = 1;

-- advance --
-- Until the column counts from behind :number on: never backwards, because other tenants count with it.
SELECT count(nextval(pg_get_serial_sequence(:table, :column)))
FROM generate_series(nextval(pg_get_serial_sequence(:table, :column)), :number);
