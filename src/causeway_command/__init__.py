"""The command `causeway`. It is loaded before the package `causeway`, which then leaves it to the
command to import torch: that takes seconds, and not every command needs it.
"""

from causeway.cli import app as app
