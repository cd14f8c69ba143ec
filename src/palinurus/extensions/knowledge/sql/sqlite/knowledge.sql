-- files --
SELECT path, stamp FROM files;

-- troubles --
SELECT troubles FROM files WHERE troubles <> '[]' ORDER BY path;

-- put_file --
INSERT INTO files (path, stamp, troubles) VALUES (?, ?, ?)
ON CONFLICT (path) DO UPDATE SET stamp = excluded.stamp, troubles = excluded.troubles;

-- drop_file --
DELETE FROM files WHERE path = :path;

-- drop_words --
DELETE FROM fact_words WHERE rowid IN (SELECT number FROM facts WHERE path = :path);

-- drop_mentions --
DELETE FROM mentions WHERE fact IN (SELECT number FROM facts WHERE path = :path);

-- drop_facts --
DELETE FROM facts WHERE path = :path;

-- next_number --
SELECT coalesce(max(number), 0) + 1 FROM facts;

-- put_fact --
INSERT INTO facts (number, id, path, line, last_line, kind, text, names, said_on, first_day, last_day, confidence, origin,
  instead_of)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- put_words --
INSERT INTO fact_words (rowid, words) VALUES (?, ?);

-- put_mention --
INSERT INTO mentions (name, fact) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- mentioned --
-- Every mention with its day and who else is in that fact, for the resolution of names.
SELECT m.name, f.said_on, f.names, f.text, f.origin FROM mentions m JOIN facts f ON f.number = m.fact ORDER BY f.said_on, f.number;

-- forget_names --
DELETE FROM names;

-- forget_merges --
DELETE FROM merges;

-- put_name --
INSERT INTO names (name, entity) VALUES (?, ?);

-- put_merge --
INSERT INTO merges (name, entity, score, why) VALUES (?, ?, ?, ?);

-- merges --
SELECT name, entity, score, why FROM merges ORDER BY entity, name;

-- entities --
-- Those that are listed, with their other names, how many facts name them, and when they were first and last named.
SELECT n.entity, json_group_array(DISTINCT n.name), count(DISTINCT m.fact),
  min(nullif(f.said_on, '')), max(nullif(f.said_on, ''))
FROM names n JOIN mentions m ON m.name = n.name JOIN facts f ON f.number = m.fact
GROUP BY n.entity ORDER BY count(DISTINCT m.fact) DESC, n.entity;

-- known_names --
SELECT name, entity FROM names;

-- by_words --
SELECT rowid FROM fact_words WHERE fact_words MATCH :words ORDER BY bm25(fact_words) LIMIT :most;

-- by_entity --
-- The newest facts of some entities, those that name more of them first.
SELECT m.fact FROM names n JOIN mentions m ON m.name = n.name JOIN facts f ON f.number = m.fact
WHERE n.entity IN (SELECT value FROM json_each(:entities))
GROUP BY m.fact ORDER BY count(DISTINCT n.entity) DESC, max(f.said_on) DESC, m.fact DESC LIMIT :most;

-- by_time --
-- What happened in these days, or was said then when no time is named.
SELECT number FROM facts WHERE first_day <> '' AND first_day <= :last AND last_day >= :first
UNION ALL
SELECT number FROM facts WHERE first_day = '' AND said_on BETWEEN :first AND :last
LIMIT :most;

-- by_statement --
-- Facts that may say what is so: those that name an entity, or, without one, those with one of some words that name
-- nobody. The newest first.
SELECT f.number FROM names n JOIN mentions m ON m.name = n.name JOIN facts f ON f.number = m.fact
WHERE n.entity = :entity AND f.kind IN ('world', 'opinion')
UNION
SELECT f.number FROM (SELECT rowid FROM fact_words WHERE :entity = '' AND fact_words MATCH :words
  ORDER BY rowid DESC LIMIT 3000) w
JOIN facts f ON f.number = w.rowid WHERE f.names = '[]'
ORDER BY 1 DESC LIMIT :most;

-- by_until --
-- What was said until a day and may have been so for long, the newest first.
SELECT f.number FROM facts f WHERE f.said_on <= :last AND f.kind IN ('world', 'opinion')
ORDER BY f.said_on DESC, f.number DESC LIMIT :most;

-- by_kind --
SELECT f.number FROM facts f WHERE f.kind = :kind ORDER BY f.said_on DESC, f.number DESC LIMIT :most;

-- facts --
SELECT f.number, f.id, f.kind, f.text, f.names, f.path, f.line, f.last_line, f.said_on, f.first_day, f.last_day,
  f.confidence, f.origin, f.instead_of
FROM facts f WHERE f.number IN (SELECT value FROM json_each(:numbers));

-- facts_at --
-- Facts in these lines: path, first, last.
SELECT DISTINCT f.number, f.id, f.kind, f.text, f.names, f.path, f.line, f.last_line, f.said_on, f.first_day, f.last_day,
  f.confidence, f.origin, f.instead_of
FROM json_each(:places) p JOIN facts f ON f.path = p.value ->> 0
  AND f.line <= p.value ->> 2 AND f.last_line >= p.value ->> 1;

-- facts_of_kind --
SELECT f.number, f.id, f.kind, f.text, f.names, f.path, f.line, f.last_line, f.said_on, f.first_day, f.last_day,
  f.confidence, f.origin, f.instead_of
FROM facts f WHERE f.kind = :kind ORDER BY f.said_on, f.number;

-- all_facts --
SELECT f.number, f.id, f.kind, f.text, f.names, f.path, f.line, f.last_line, f.said_on, f.first_day, f.last_day,
  f.confidence, f.origin, f.instead_of
FROM facts f ORDER BY f.said_on, f.number;

-- entities_of --
SELECT m.fact, n.entity FROM mentions m JOIN names n ON n.name = m.name
WHERE m.fact IN (SELECT value FROM json_each(:numbers)) ORDER BY m.fact, n.entity;

-- count --
SELECT count(*) FROM facts;

-- put_recalled --
INSERT INTO recalled (fact, question, day) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- forget_recalled --
DELETE FROM recalled WHERE day < :before;

-- often_recalled --
SELECT fact, count(*) FROM recalled GROUP BY fact HAVING count(*) >= :least;
