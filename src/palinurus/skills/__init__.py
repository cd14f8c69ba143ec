"""Skills on disk: folders with a SKILL.md, which are found, checked, offered to the model and restricted to what they
declare."""
