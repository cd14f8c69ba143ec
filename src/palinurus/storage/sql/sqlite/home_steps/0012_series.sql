-- From here on each package has a series of steps of its own, and this says which of them were taken. How far the series
-- of the whole home has come is told by user_version, as it always was.
CREATE TABLE steps_taken (
  series TEXT NOT NULL,
  number INTEGER NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (series, number)
) STRICT;
