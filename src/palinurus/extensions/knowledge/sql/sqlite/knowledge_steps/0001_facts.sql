-- What one agent knows, read from its markdown. Derived: delete the file and the next question makes it anew.

CREATE TABLE files (
  path TEXT PRIMARY KEY,
  stamp TEXT NOT NULL,
  troubles TEXT NOT NULL              -- JSON: bullets that are no facts as they stand
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL,                   -- by kind, words and day: the same fact may stand in several files
  path TEXT NOT NULL,
  line INTEGER NOT NULL,
  last_line INTEGER NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL,
  names TEXT NOT NULL,                -- JSON: as they are mentioned
  said_on TEXT NOT NULL,
  first_day TEXT NOT NULL,
  last_day TEXT NOT NULL,
  confidence REAL,
  origin TEXT NOT NULL
) STRICT;
CREATE INDEX facts_by_path ON facts (path);
CREATE INDEX facts_by_day ON facts (first_day, last_day) WHERE first_day <> '';
CREATE INDEX facts_by_said ON facts (said_on);

CREATE VIRTUAL TABLE fact_words USING fts5 (
  words, content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);

-- Every name that a fact mentions, and the entity under which it is listed.
CREATE TABLE mentions (name TEXT NOT NULL, fact INTEGER NOT NULL, PRIMARY KEY (name, fact)) STRICT, WITHOUT ROWID;
CREATE INDEX mentions_by_fact ON mentions (fact);
CREATE TABLE names (name TEXT PRIMARY KEY, entity TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX names_by_entity ON names (entity);
CREATE TABLE merges (name TEXT PRIMARY KEY, entity TEXT NOT NULL, score REAL NOT NULL, why TEXT NOT NULL)
  STRICT, WITHOUT ROWID;
