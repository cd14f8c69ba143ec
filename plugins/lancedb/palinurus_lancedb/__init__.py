"""Memory in LanceDB: the index of notes and sessions, in place of the built-in one."""
