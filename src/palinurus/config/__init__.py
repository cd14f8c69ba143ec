"""One frozen config object made from JSON5 files, replaced as a whole between turns when it changes."""
