"""`python -m causeway` is the command `causeway`."""

from causeway.cli import app

app(prog_name="causeway")
