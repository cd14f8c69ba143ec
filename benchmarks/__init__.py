"""What the program exists for, measured beside its peers. `python -m benchmarks --help` says how to run it."""
