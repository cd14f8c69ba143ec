-- The codes of a text's words, eight bytes each (late.py). None: its embedder makes none.
ALTER TABLE vectors ADD COLUMN tokens BLOB;
