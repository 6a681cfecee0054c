"""Tools that look on while a program runs, in the dispatcher: they cost nothing when off."""
