-- files --
SELECT source, path, size, mtime_ns, inode, ctime_ns, digest, indexed_at, pieces, recipe FROM files;

-- file_parts --
-- Its id, and which pieces are its own.
SELECT id, pieces, first_piece, first_piece + pieces - 1 FROM files WHERE source = :source AND path = :path;

-- next_ids --
SELECT piece, passage, context FROM ids;

-- set_ids --
UPDATE ids SET piece = :piece, passage = :passage, context = :context;

-- add_file --
INSERT INTO files (source, path, size, mtime_ns, inode, ctime_ns, digest, indexed_at, recipe,
                   first_piece, pieces, first_passage, passages, first_context, contexts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- touch_file --
UPDATE files SET size = ?, mtime_ns = ?, inode = ?, ctime_ns = ? WHERE source = ? AND path = ?;

-- add_piece --
INSERT INTO pieces (id, start_line, end_line, text, context, meaning) VALUES (?, ?, ?, ?, ?, ?);

-- add_piece_words --
INSERT INTO piece_words (rowid, words) VALUES (?, ?);

-- add_passage --
INSERT INTO passages (id, first_piece) VALUES (?, ?);

-- add_passage_words --
INSERT INTO passage_words (rowid, words) VALUES (?, ?);

-- add_context --
INSERT INTO contexts (id, text) VALUES (?, ?);

-- drop_file --
-- With all its parts.
DELETE FROM pieces WHERE id BETWEEN (SELECT first_piece FROM files WHERE id = :file)
  AND (SELECT first_piece + pieces - 1 FROM files WHERE id = :file);
DELETE FROM piece_words WHERE rowid BETWEEN (SELECT first_piece FROM files WHERE id = :file)
  AND (SELECT first_piece + pieces - 1 FROM files WHERE id = :file);
DELETE FROM passages WHERE id BETWEEN (SELECT first_passage FROM files WHERE id = :file)
  AND (SELECT first_passage + passages - 1 FROM files WHERE id = :file);
DELETE FROM passage_words WHERE rowid BETWEEN (SELECT first_passage FROM files WHERE id = :file)
  AND (SELECT first_passage + passages - 1 FROM files WHERE id = :file);
DELETE FROM contexts WHERE id BETWEEN (SELECT first_context FROM files WHERE id = :file)
  AND (SELECT first_context + contexts - 1 FROM files WHERE id = :file);
DELETE FROM files WHERE id = :file;

-- clear --
-- Everything but the vectors, and the ids go on.
DELETE FROM files;
DELETE FROM pieces;
DELETE FROM passages;
DELETE FROM contexts;
INSERT INTO piece_words (piece_words) VALUES ('delete-all');
INSERT INTO passage_words (passage_words) VALUES ('delete-all');
UPDATE spaces SET embedded = 0;

-- count_embedded --
-- These pieces come or go (:sign): how many of them have a vector is counted along, for each space.
UPDATE spaces SET embedded = embedded + :sign * (
  SELECT count(*) FROM pieces p
  WHERE p.id BETWEEN :first AND :last
    AND EXISTS (SELECT 1 FROM vectors v WHERE v.space = spaces.id AND v.meaning = p.meaning)
);

-- layout_files --
-- Whose pieces are whose, in the order of their ids.
SELECT first_piece, pieces, source, path FROM files WHERE pieces > 0 ORDER BY first_piece;

-- layout_passages --
SELECT first_piece, id FROM passages ORDER BY first_piece;

-- piece_count --
-- How many pieces have a word. Those that were deleted may count a while longer.
SELECT doc FROM piece_counts WHERE term = :term;

-- passage_count --
SELECT doc FROM passage_counts WHERE term = :term;

-- best_pieces --
-- bm25 is negative, smaller is better.
SELECT rowid, -rank FROM piece_words WHERE piece_words MATCH :words ORDER BY rank LIMIT :limit;

-- newest_pieces --
-- For words so common that ranking all their pieces would take too long: of the newest ones only.
SELECT rowid, -bm25(piece_words) FROM piece_words WHERE piece_words MATCH :words ORDER BY rowid DESC LIMIT :limit;

-- best_passages --
SELECT rowid, -bm25(passage_words) FROM passage_words WHERE passage_words MATCH :words ORDER BY rowid DESC LIMIT :limit;

-- pieces_by_id --
SELECT p.id, p.start_line, p.end_line, p.text, c.text
FROM pieces p LEFT JOIN contexts c ON c.id = p.context
WHERE p.id IN (SELECT value FROM json_each(:ids)) ORDER BY p.id;

-- pieces_of_file --
SELECT p.id, p.start_line, p.end_line, p.text, c.text
FROM files f
JOIN pieces p ON p.id BETWEEN f.first_piece AND f.first_piece + f.pieces - 1
LEFT JOIN contexts c ON c.id = p.context
WHERE f.source = :source AND f.path = :path ORDER BY p.id;

-- pieces_meaning --
-- The pieces that have one of these vectors; of those that say the very same the newest few.
SELECT p.id
FROM json_each(:ids) wanted
CROSS JOIN vectors v ON v.id = wanted.value
CROSS JOIN pieces p ON p.id IN (SELECT id FROM pieces WHERE meaning = v.meaning ORDER BY id DESC LIMIT 5);

-- space_in_use --
SELECT name FROM spaces WHERE in_use;

-- space_named --
SELECT id, dimensions, embedded, in_use FROM spaces WHERE name = :name;

-- spaces --
SELECT name, embedded FROM spaces;

-- add_space --
INSERT INTO spaces (name, dimensions) VALUES (:name, :dimensions) ON CONFLICT (name) DO NOTHING;

-- drop_other_spaces --
-- Their vectors go with them.
DELETE FROM spaces WHERE name NOT IN (SELECT value FROM json_each(:names));

-- use_space --
UPDATE spaces SET in_use = (name = :name);

-- vector_count --
SELECT count(*) FROM vectors;

-- vectors_wanted --
-- Of these meanings those that a piece still has, and that have no vector yet: while a vector was made, its words may
-- have been forgotten.
SELECT wanted.value FROM json_each(:meanings) wanted
WHERE EXISTS (SELECT 1 FROM pieces p WHERE p.meaning = wanted.value)
  AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.space = :space AND v.meaning = wanted.value);

-- add_vector --
INSERT INTO vectors (space, meaning, vector, tokens) VALUES (?, ?, ?, ?);

-- add_embedded --
UPDATE spaces SET embedded = embedded + (
  SELECT count(*) FROM pieces WHERE meaning IN (SELECT value FROM json_each(:meanings))
) WHERE id = :space;

-- add_signs --
-- Of the vectors that have none yet.
INSERT INTO signs (id, bits)
SELECT id, vec_quantize_binary(vec_int8(unpacked(vector))) FROM vectors
WHERE space = :space AND id > (SELECT ifnull(max(id), 0) FROM signs);

-- drop_signs --
DELETE FROM signs;

-- drop_orphans --
-- Vectors of words that no file holds any more. The signs follow.
DELETE FROM vectors WHERE NOT EXISTS (SELECT 1 FROM pieces p WHERE p.meaning = vectors.meaning);
DELETE FROM signs WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE v.id = signs.id);

-- scrub --
-- As above, and the words of deleted pieces, which an index keeps until its parts are joined.
DELETE FROM vectors WHERE NOT EXISTS (SELECT 1 FROM pieces p WHERE p.meaning = vectors.meaning);
DELETE FROM signs WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE v.id = signs.id);
INSERT INTO piece_words (piece_words) VALUES ('optimize');
INSERT INTO passage_words (passage_words) VALUES ('optimize');

-- signs_after --
SELECT id, bits FROM signs WHERE id > :last ORDER BY id;

-- vectors_by_id --
SELECT id, vector FROM vectors WHERE id IN (SELECT value FROM json_each(:ids));

-- vectors_of_pieces --
SELECT p.id, v.vector, v.tokens
FROM json_each(:ids) wanted
CROSS JOIN pieces p ON p.id = wanted.value
CROSS JOIN vectors v ON v.space = :space AND v.meaning = p.meaning;

-- nearest --
SELECT id FROM vectors WHERE space = :space
ORDER BY vec_distance_cosine(vec_int8(unpacked(vector)), vec_int8(:query)) LIMIT :limit;

-- cosines --
SELECT p.id, 1 - vec_distance_cosine(vec_int8(unpacked(v.vector)), vec_int8(:query))
FROM json_each(:ids) wanted
CROSS JOIN pieces p ON p.id = wanted.value
CROSS JOIN vectors v ON v.space = :space AND v.meaning = p.meaning;

-- unembedded --
-- The newest pieces between two ids that have no vector in a space.
SELECT p.id, p.meaning, p.text FROM pieces p
WHERE p.id BETWEEN :first AND :last
  AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.space = :space AND v.meaning = p.meaning)
ORDER BY p.id DESC LIMIT :limit;

-- counts --
SELECT count(*), ifnull(sum(pieces), 0), ifnull(sum(passages), 0) FROM files;
