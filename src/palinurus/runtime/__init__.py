"""Choose concrete parts from the config and join them; the only room that knows them all."""
