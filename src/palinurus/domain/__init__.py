"""The nouns of Palinurus: frozen records that every other room may use, and that know no other room."""
