"""Operations: everything that a surface can call, in one typed table, run in process or over the unix socket."""
