-- What a line of the owner stands in the place of.
ALTER TABLE facts ADD COLUMN instead_of TEXT NOT NULL DEFAULT '';
