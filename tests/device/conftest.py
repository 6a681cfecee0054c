"""What the tests of the device know about it: its name, and what its set-up offers."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import textwrap
from collections.abc import Callable, Iterator

import pytest
import torch

import causeway
import warm

NAME = torch._C._get_privateuse1_backend_name()


@pytest.fixture(scope="session")
def name() -> str:
    """torch's name of the device, "sim"."""
    return NAME


@pytest.fixture
def device() -> torch.device:
    return torch.device(NAME, 0)


@pytest.fixture
def other() -> torch.device:
    """A second device."""
    if torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    return torch.device(NAME, 1)


@pytest.fixture(scope="session")
def module():
    """torch.sim, whatever the name."""
    return torch.get_device_module(NAME)


@pytest.fixture
def empty_cache(module):
    """Nothing lies in the cache of memory, before and after."""
    gc.collect()
    module.init()
    module.synchronize()
    module.empty_cache()
    yield
    gc.collect()
    module.empty_cache()


@pytest.fixture
def captures(module, device) -> Iterator[None]:
    """For tests of graphs. Whatever one captured, the device computes as before."""
    from causeway import _C

    if not {"code.v1", "graph.v1"} & {*_C.vendor_state().get("extensions", ())}:
        pytest.skip("the vendor offers no compiler and no graphs: most operators run on the host")
    yield
    assert not module.is_current_stream_capturing()
    assert (torch.ones(3, device=device) + 1).sum().item() == 6


@pytest.fixture
def warmed() -> Callable[[Callable[[], object]], object]:
    """warmed(f): f(), before it is captured, since a chip may have to see a call once; skips where
    the host computes a part of it."""

    def warmed(f: Callable[[], object]) -> object:
        with causeway.ledger() as ledger:
            found = f()
        if of_host := sorted({row.operator for row in ledger.rows if row.rung == "host"}):
            pytest.skip(f"the chip leaves {', '.join(of_host)} to the host")
        return found

    return warmed


@pytest.fixture(scope="session")
def takes(module):
    """takes(bytes): what a tensor of them takes, with what the chip may touch behind it."""
    properties = module.get_device_properties(0)
    step = max(512, properties.alignment)
    return lambda size: -(-(size + properties.padding) // step) * step


@pytest.fixture(scope="session")
def needs(module):
    """needs(dtype, ...): skips where the chip has one of them not, and says which."""
    has = module.get_device_properties(0).dtypes

    def needs(*dtypes: torch.dtype) -> None:
        for dtype in dtypes:
            if dtype not in has:
                pytest.skip(f"the chip has no {str(dtype).removeprefix('torch.')}")

    return needs


@pytest.fixture(scope="session")
def host_addressable(module) -> bool:
    return module.get_device_properties(0).host_addressable


@pytest.fixture(scope="session")
def has_streams() -> bool:
    from causeway import _C

    return _C.vendor_state()["entries"]["stream_create"]


@pytest.fixture(scope="session")
def has_ipc() -> bool:
    from causeway import _C

    return "ipc.v1" in _C.vendor_state()["extensions"]


Run = Callable[..., subprocess.CompletedProcess]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a script in a process of its own: `run(source, NAME=value)`; a value None unsets.

    `new`: in a Python that was not started ahead, see warm.py.
    """

    def run(source: str, *, check: bool = True, new: bool = False, **env: str | None):
        environment = {**os.environ, **{k: v for k, v in env.items() if v is not None}}
        for key in [k for k, v in env.items() if v is None]:
            environment.pop(key, None)
        source = re.sub(r"\bDEVICE\b", NAME, textwrap.dedent(source))
        done = warm.run(["-c", source], env=environment, timeout=240, new=new)
        if check:
            assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(autouse=True)
def _same_device_after():
    """A test that changes the current device or stream would change the meaning of the next."""
    yield
    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(0)


@pytest.fixture(autouse=True)
def _right_where_compared():
    """With CAUSEWAY_COMPARE='.*' every operator of these tests is compared with the CPU too."""
    from causeway.debug import whole

    comparison = whole.comparison()
    before = len(comparison.failures) if comparison else 0
    yield
    if comparison is not None:
        found = comparison.failures[before:]
        assert not found, "\n".join(map(str, found))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that look at what a comparison changes are left out while one is on."""
    if not os.environ.get("CAUSEWAY_COMPARE"):
        return
    for item in items:
        if marker := item.get_closest_marker("not_compared"):
            item.add_marker(pytest.mark.skip(reason=f"while comparing: {marker.args[0]}"))
