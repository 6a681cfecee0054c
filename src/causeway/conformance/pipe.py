"""What a worker process of the suite is given, and how it answers: a line of JSON each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def speaker() -> Callable[..., None]:
    """In a worker: say(key=value, ...) writes a line to the parent."""
    pipe = os.fdopen(int(os.environ["CAUSEWAY_CONFORMANCE_PIPE"]), "w", buffering=1)
    return lambda **what: print(json.dumps(what), file=pipe, flush=True)


def begin() -> tuple[Any, Callable[..., None]]:
    """In a worker with one task: the task, from its standard input, and what it speaks with."""
    return json.loads(sys.stdin.readline()), speaker()
