"""Operators: which rung of the ladder serves them (`ladder`), and what each served (`ledger`)."""
