-- all --
-- All of them, oldest first: they are held in memory, because every read asks.
SELECT row FROM file_origins ORDER BY at, number;

-- put --
INSERT INTO file_origins (path, at, row) VALUES (:path, :at, :row)
ON CONFLICT (tenant, path) DO UPDATE SET at = :at, row = :row;
