"""Tools that look at every operator: dump, record, replay, diff, overflow watch. Nothing here is
imported, and nothing costs anything, until one of them is asked for.
"""
