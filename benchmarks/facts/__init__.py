"""How many facts of recorded sessions survive a fold in view. `python -m benchmarks.facts [FOLDER]`."""
