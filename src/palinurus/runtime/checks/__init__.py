"""What `pal doctor` looks at. Nothing here needs the lock, and a broken config stops only what depends on it."""
