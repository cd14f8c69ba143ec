"""Where commands run: on the host, in bubblewrap, or in a container."""
