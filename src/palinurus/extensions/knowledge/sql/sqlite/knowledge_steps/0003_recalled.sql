-- Which facts were among the best answers to which questions. Not derived: without it a fact is proposed later.
CREATE TABLE recalled (
  fact TEXT NOT NULL,                 -- id
  question TEXT NOT NULL,             -- digest of its words
  day TEXT NOT NULL,
  PRIMARY KEY (fact, question)
) STRICT, WITHOUT ROWID;
