-- Words of all transcripts. Derived: delete the file and it is made anew.

-- The last entry that was read. When the home has another one there, or none, it is not the home that was read.
CREATE TABLE read_up_to (position INTEGER NOT NULL, entry_id TEXT NOT NULL) STRICT;
INSERT INTO read_up_to VALUES (0, '');

CREATE TABLE said (
  position INTEGER PRIMARY KEY,       -- of the entry in home.sqlite
  session_id TEXT NOT NULL,
  session_key TEXT NOT NULL,
  agent TEXT NOT NULL,
  entry_id TEXT NOT NULL,
  role TEXT NOT NULL,
  timestamp TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;

CREATE VIRTUAL TABLE said_words USING fts5 (words, content = '', tokenize = 'porter unicode61 remove_diacritics 2');
