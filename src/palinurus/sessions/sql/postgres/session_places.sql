-- find_sessions --
SELECT number AS at, id, key, '', row, extra FROM sessions;

-- set_sessions --
UPDATE sessions SET row = ?2, extra = ?3 WHERE number = ?1;
