-- open --
-- The index that is exported, read only.
ATTACH :index AS source;

-- make --
-- The tables as OpenClaw's documents describe them.
CREATE TABLE files (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path TEXT NOT NULL UNIQUE,
  hash TEXT NOT NULL,
  mtime INTEGER NOT NULL,
  chunk_count INTEGER NOT NULL
);
CREATE TABLE chunks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  file_id INTEGER NOT NULL REFERENCES files (id),
  content TEXT NOT NULL,
  start_line INTEGER NOT NULL,
  end_line INTEGER NOT NULL,
  token_count INTEGER NOT NULL
);
CREATE TABLE embedding_cache (
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  embedding BLOB NOT NULL,
  PRIMARY KEY (provider, model, content_hash)
);
CREATE VIRTUAL TABLE chunks_fts USING fts5 (content, content = chunks, content_rowid = id);

-- fill --
-- mtime in milliseconds; a token is four characters, as everywhere in memory.
INSERT INTO files SELECT id, path, lower(hex(digest)), mtime_ns / 1000000, pieces FROM source.files;
INSERT INTO chunks
SELECT p.id, f.id, p.text, p.start_line, p.end_line, (length(p.text) + 3) / 4
FROM source.files f
JOIN source.pieces p ON p.id BETWEEN f.first_piece AND f.first_piece + f.pieces - 1;
INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild');

-- space --
SELECT id, name, dimensions FROM source.spaces WHERE in_use AND embedded;

-- make_vectors --
-- The number of dimensions is filled in.
CREATE VIRTUAL TABLE chunks_vec USING vec0 (chunk_id INTEGER PRIMARY KEY, embedding float[%d]);

-- fill_vectors --
INSERT INTO chunks_vec
SELECT p.id, floats(v.vector, :dimensions)
FROM source.pieces p JOIN source.vectors v ON v.space = :space AND v.meaning = p.meaning;
INSERT OR IGNORE INTO embedding_cache
SELECT :provider, :model, hash_of(c.content), e.embedding
FROM chunks c JOIN chunks_vec e ON e.chunk_id = c.id;

-- counts --
SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM chunks), (SELECT count(*) FROM embedding_cache);
