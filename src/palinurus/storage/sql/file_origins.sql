-- file_origins --
-- All of them, oldest first: they are held in memory, because every read asks.
SELECT row FROM file_origins ORDER BY at, rowid;

-- put_file_origin --
INSERT INTO file_origins (path, at, row) VALUES (:path, :at, :row)
ON CONFLICT (path) DO UPDATE SET at = :at, row = :row;

-- remove_file_origin --
DELETE FROM file_origins WHERE path = :path;
