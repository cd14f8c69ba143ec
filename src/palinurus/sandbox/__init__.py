"""Where commands run: on the host, or behind walls that the kernel keeps."""
