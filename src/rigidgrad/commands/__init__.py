"""The commands of `rigidgrad`, one file each: `add_parser(commands)` adds it, and sets `run`, whose
result is the exit code (none: 0).
"""
