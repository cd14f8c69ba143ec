"""Who turns texts into vectors."""
