"""One frozen object made from JSON5 files, replaced whole between turns when it changes."""
