"""Tests that run on another chip than the one of this process.

    @on({"ops": "all"}, {"ops": "all", "memory_model": "discrete"})
    def test_something() -> None: ...

runs the test's body in a Python of its own for each of the set-ups. That Python is started once and
serves all tests of its set-up, since an import of torch costs seconds and a test milliseconds. A
body may take the arguments of `parametrize` (numbers and words) but no fixtures.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Setup = dict[str, str]
Body = Callable[..., None]


def variables(setup: Setup) -> Setup:
    """The environment of a set-up: lower-case names are settings of the simulated chip."""
    names = {k: f"CAUSEWAY_SIM_{k.upper()}" if k.islower() else k for k in setup}
    return {names[key]: value for key, value in setup.items()}


def on(*setups: Setup) -> Callable[[Body], Body]:
    """Run the test in another Python, once for each of these set-ups."""

    def decorate(body: Body) -> Body:
        @functools.wraps(body)
        def test(setup: Setup, **arguments: Any) -> None:
            _python(setup).call(inspect.getfile(body), body.__name__, arguments)

        mine = inspect.Parameter("setup", inspect.Parameter.KEYWORD_ONLY)
        given = inspect.signature(body).parameters.values()
        test.__signature__ = inspect.Signature([*given, mine])  # type: ignore[attr-defined]
        test.body = body  # type: ignore[attr-defined]
        names = ["-".join(s.values()).replace("/", "") or "as-it-comes" for s in setups]
        return pytest.mark.process(pytest.mark.parametrize("setup", setups, ids=names)(test))

    return decorate


class Python:
    """A Python with a set-up, which runs the bodies of tests one after the other."""

    def __init__(self, setup: Setup) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            env=clean | {"OMP_NUM_THREADS": "1"} | variables(setup),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def call(self, path: str, name: str, arguments: dict[str, Any]) -> None:
        """Run the body of test `name`; fail where it fails."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([path, name, arguments]) + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            self.errors.seek(0)
            words = self.errors.read()[-4000:]
            pytest.fail(f"exit {self.process.wait()}\n{words}", pytrace=False)
        error = json.loads(reply)
        if error is not None:
            pytest.fail(error, pytrace=False)

    def stop(self) -> int:
        self.process.communicate()
        self.errors.close()
        return self.process.returncode


_pythons: dict[str, Python] = {}


def _python(setup: Setup) -> Python:
    key = json.dumps(setup, sort_keys=True)
    if key not in _pythons or _pythons[key].process.poll() is not None:
        _pythons[key] = Python(setup)
    return _pythons[key]


def stop() -> None:
    """End them all. Each must end well: it used a device, and that is no reason to crash."""
    statuses = {key: python.stop() for key, python in _pythons.items()}
    _pythons.clear()
    assert not any(statuses.values()), statuses


def serve() -> None:
    """Run bodies by path and name, as lines of standard input say, until it ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.append(str(Path(__file__).parents[1] / "abi"))
    modules: dict[str, Any] = {}
    for line in sys.stdin:
        path, name, arguments = json.loads(line)
        error = None
        gc.collect()  # what a test before left must not go during this one, which may count bytes
        try:
            if path not in modules:
                spec = importlib.util.spec_from_file_location(f"elsewhere_{len(modules)}", path)
                assert spec is not None
                assert spec.loader is not None
                modules[path] = importlib.util.module_from_spec(spec)
                sys.modules[spec.name] = modules[path]  # dataclasses look there
                spec.loader.exec_module(modules[path])
            getattr(modules[path], name).body(**arguments)
        except BaseException:
            error = traceback.format_exc()
        replies.write(json.dumps(error) + "\n")
        replies.flush()


if __name__ == "__main__":
    serve()
