"""One side of a verification, in a process of its own; `runner.py` starts it."""

import sys

from causeway.verify.observe import main

# Not `-m causeway.verify.observe`: that code would be __main__, and be shown CUDA as programs are.
main(sys.argv[1:])
