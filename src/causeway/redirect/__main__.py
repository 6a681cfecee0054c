"""`python -m causeway.redirect --markdown` writes docs/transfer.md."""

import sys

from causeway.redirect.describe import markdown

if __name__ == "__main__":
    sys.stdout.write(markdown())
