"""Pages that people read, files that machines read: one HTML file that needs nothing else, and
SARIF for editors and code hosts.

`page` has the building blocks and the page, `sarif` the other format, `atomic` how a file is
written. All that a page shows is text from somewhere: names, sources, messages. Everything is
escaped, and the page's own policy lets no script run but its one.
"""
