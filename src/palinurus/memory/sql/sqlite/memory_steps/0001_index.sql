-- One agent's memory, ready to be searched. Derived: delete the file and the next sweep makes it anew.
-- Ids of pieces and passages only grow, and those of one file lie together: a range says whose they are.

CREATE TABLE files (
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  path TEXT NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL,
  digest BLOB NOT NULL,
  indexed_at INTEGER NOT NULL,
  recipe TEXT NOT NULL,
  first_piece INTEGER NOT NULL,
  pieces INTEGER NOT NULL,
  first_passage INTEGER NOT NULL,
  passages INTEGER NOT NULL,
  first_context INTEGER NOT NULL,
  contexts INTEGER NOT NULL,
  UNIQUE (source, path)
) STRICT;

-- The next free ones. None is ever given twice.
CREATE TABLE ids (piece INTEGER NOT NULL, passage INTEGER NOT NULL, context INTEGER NOT NULL) STRICT;
INSERT INTO ids VALUES (1, 1, 1);

CREATE TABLE pieces (
  id INTEGER PRIMARY KEY,
  start_line INTEGER NOT NULL,
  end_line INTEGER NOT NULL,
  text TEXT NOT NULL,
  context INTEGER,                    -- none: nothing stands above it
  meaning INTEGER NOT NULL,           -- 64 bits of the digest of what is embedded
  embed ANY                           -- what is embedded: a part of the text, or words of its own (memory_rows.py)
) STRICT;
CREATE INDEX pieces_by_meaning ON pieces (meaning);

-- What stands above pieces. Those of a section share it.
CREATE TABLE contexts (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;

CREATE TABLE passages (
  id INTEGER PRIMARY KEY,
  first_piece INTEGER NOT NULL        -- up to the first piece of the next one
) STRICT;

-- The words are not kept, only where they are. bm25 needs their positions, so there is no smaller form.
CREATE VIRTUAL TABLE piece_words USING fts5 (
  words, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE passage_words USING fts5 (
  words, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE piece_counts USING fts5vocab (piece_words, row);
CREATE VIRTUAL TABLE passage_counts USING fts5vocab (passage_words, row);
-- A whole batch of files is gathered in memory before it is written: a quarter less work in all.
INSERT INTO piece_words (piece_words, rank) VALUES ('hashsize', 33554432);
INSERT INTO passage_words (passage_words, rank) VALUES ('hashsize', 33554432);

CREATE TABLE spaces (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  dimensions INTEGER NOT NULL,
  embedded INTEGER NOT NULL DEFAULT 0, -- pieces that have a vector here: counted as they come and go
  in_use INTEGER NOT NULL DEFAULT 0
) STRICT;

-- All vectors that were ever made, of the pieces of today and of yesterday: four bits a number.
CREATE TABLE vectors (
  id INTEGER PRIMARY KEY,
  space INTEGER NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
  meaning INTEGER NOT NULL,
  vector BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vectors_by_meaning ON vectors (space, meaning);

-- The signs of the vectors of the space in use: what a search goes through from end to end.
CREATE TABLE signs (id INTEGER PRIMARY KEY, bits BLOB NOT NULL) STRICT;
