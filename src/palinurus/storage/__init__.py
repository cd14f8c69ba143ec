"""The storage engine: database, transactions, migrations, job queue and the lock of the home."""
