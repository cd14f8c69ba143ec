"""Tools for programs: one call over HTTP, without a model."""
