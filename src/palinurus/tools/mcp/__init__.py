"""Tools that servers bring which speak the Model Context Protocol: found, named, called, bounded."""
