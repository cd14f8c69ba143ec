"""Everything that a door can ask for: one typed table, run in process or over the unix socket."""
