"""A program's calls, written to a file: `causeway record`, `replay`, `diff` and `cases`."""
