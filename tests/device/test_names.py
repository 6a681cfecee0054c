"""Every public name of torch.cuda works on the device, or says why it does not."""

import importlib
import pkgutil
from pathlib import Path

import pytest
import torch
import torch.cuda

from causeway.device import names

SUBMODULES = {m.name for m in pkgutil.iter_modules(torch.cuda.__path__) if m.name[0] != "_"}
PUBLIC = {n for n in dir(torch.cuda) if n[0] != "_"} | SUBMODULES


TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def test_table_lists_every_public_name_of_torch_cuda():
    here = {
        name
        for name in {*names.WORKS, *names.NOT}
        for since, until in [names.RELEASES.get(name, (names.OLDEST, None))]
        if since <= TORCH < (until or (99, 0))
    }
    assert here == PUBLIC
    assert not set(names.WORKS) & set(names.NOT)
    assert set(names.RELEASES) <= {*names.WORKS, *names.NOT}


@pytest.mark.parametrize("key", sorted(names.WORKS))
def test_name_that_works_is_there(module, key):
    assert getattr(module, key) is not None
    assert key in dir(module)


@pytest.mark.parametrize("key", sorted({**names.NOT, **names.PRIVATE_NOT}))
def test_name_that_does_not_work_says_why(module, name, key):
    assert not hasattr(module, key)
    with pytest.raises(AttributeError, match=f"torch.{name}.{key} is not for this device, because"):
        getattr(module, key)


def test_unknown_name_is_an_ordinary_attribute_error(module):
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        module.no_such_name  # noqa: B018


@pytest.mark.parametrize("submodule", ["amp", "comm", "memory", "random"])
def test_submodule_has_the_names_of_torch_cudas(module, name, submodule):
    theirs = importlib.import_module(f"torch.cuda.{submodule}").__all__
    ours = importlib.import_module(f"torch.{name}.{submodule}")
    assert ours is getattr(module, submodule)
    missing = [n for n in theirs if not hasattr(ours, n) and n not in names.NOT]
    assert not missing


def test_docs_are_the_generated_table():
    page = Path(__file__).parents[2] / "docs" / "device.md"
    assert page.read_text() == names.markdown(), "run: python -m causeway.device --markdown"


def test_markdown_command_prints_the_table(run):
    done = run(
        "import sys; from causeway.device.__main__ import main; sys.exit(main(['--markdown']))"
    )
    assert "| `CUDAPluggableAllocator` | not for this device" in done.stdout


def test_import_of_the_module_is_a_small_part_of_the_import_of_torch(run):
    done = run(
        """
        import time, sys
        begin = time.process_time()
        import torch
        whole = time.process_time() - begin
        for key in [k for k in sys.modules if k.startswith("causeway.device")]:
            del sys.modules[key]
        begin = time.process_time()
        import causeway.device
        print((time.process_time() - begin) / whole)
        """,
        new=True,
    )
    assert float(done.stdout) < 0.05
