"""Tools that settings switch on: for the whole process, or from the moment they are set, in Python
or in os.environ. None is imported before it is on.
"""

from __future__ import annotations

import functools
import itertools

from causeway import config
from causeway.debug.whole import COMPARE, TOOLS, push_compare


def start() -> None:
    """Hand the environment's values to the tools, and later changes as they come."""
    from causeway import _C

    config.listen(COMPARE, push_compare)
    if config.given("compare"):
        push_compare()
    for tool, names in TOOLS.items():
        apply = functools.partial(_apply, tool)
        config.listen(names, apply)
        if config.given(tool):
            apply()
    watched = {*COMPARE, *itertools.chain(*TOOLS.values())}
    variables = {config.SETTINGS[name].variable: name for name in watched}
    variables |= {v: name for v, name in config.aliases().items() if name in watched}

    def changed(variable: str) -> None:
        if variable in variables:
            from causeway.debug import environment

            environment.changed(variables[variable])

    # Other systems' variables begin otherwise: then all changes are told.
    _C.watch_environment("" if config.aliases() else config.PREFIX, changed)


def _apply(tool: str) -> None:
    from causeway.debug import environment

    environment.apply(tool)
