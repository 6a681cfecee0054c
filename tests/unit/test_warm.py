"""A program cannot tell whether its Python is new or a fork of one that has imported torch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import warm

pytestmark = [pytest.mark.process, pytest.mark.once]

SERVER = "/tests/warm.py"
PROGRAMS = {
    "before torch": "import sys; print(__name__, __file__ if '__file__' in globals() else None, "
    "sys.argv, sys.orig_argv[1:], sys.path, 'torch' in sys.modules, 'torch.nn' in sys.modules)",
    "torch by its name": "import torch; print(torch.__spec__.origin, "
    "type(torch.__spec__.loader), torch.accelerator.current_accelerator())",
    "torch by a module": "from torch.nn import Linear; print(Linear(1, 1).to('sim').weight.device)",
    "where torch is": "import importlib.util; print(importlib.util.find_spec('torch').origin)",
    "a status": "import sys; sys.exit(3)",
    "a message": "import sys; print('out'); sys.exit('gone')",
    "an error": "import torch\ndef f(): raise ValueError('no')\nf()",
    "an error in torch": "import torch; torch.ones(2, device='sim') @ torch.ones(3, device='sim')",
    "a syntax error": "x = = 1",
    "a signal": "import os; os.kill(os.getpid(), 9)",
    "its end": "import atexit, sys, torch\natexit.register(print, 'last')\n"
    "class A:\n  def __del__(self): sys.stdout.write('deleted')\na = A()",
    "a thread": "import threading, time; threading.Thread("
    "target=lambda: (time.sleep(0.2), print('thread'))).start(); print('main')",
    "its input": "import sys; print(repr(sys.stdin.read()))",
    "its folder": "import os; print(os.getcwd())",
    "another process": "import multiprocessing as m, torch\n"
    "print(m.get_context('spawn').Pool(1).map(abs, [-1]))",
    "variables": "import ctypes, os; g = ctypes.CDLL(None).getenv; g.restype = ctypes.c_char_p\n"
    "print(os.environ['WARM'], g(b'WARM'), os.environ.get('PYTEST_CURRENT_TEST'))",
}


def same(
    words: list[str | Path], variables: dict[str, str] | None = None, **given: object
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CAUSEWAY_", "PYTEST"))}
    environment |= {"WARM": "1"} | (variables or {})
    ours, theirs = (warm.run(words, env=environment, new=new, **given) for new in (False, True))  # type: ignore[arg-type]
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert ours.stderr == theirs.stderr
    return ours


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_the_same(name: str, tmp_path: Path) -> None:
    done = same(["-c", PROGRAMS[name], "an argument"], cwd=tmp_path)
    assert done.stdout or done.stderr or done.returncode


def test_a_script_and_a_module_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import torch; here = torch.ones(1, device='sim').device")
    (tmp_path / "script.py").write_text(
        "import sys, beside\nprint(__name__, __file__, sys.argv, sys.path[:2], "
        "__spec__ and __spec__.origin)\n"
        "print(beside.here)\nraise RuntimeError\n"
    )
    same([tmp_path / "script.py", "a"])
    same(["script.py", "--b"], cwd=tmp_path)
    assert "sim:0" in same(["-m", "script", "c"], cwd=tmp_path).stdout
    same(["-m", "no_such_module"], cwd=tmp_path)
    same([tmp_path / "no_such_script.py"])


COMPILED = """
import sys, torch
before = [n for n in sys.modules if n.startswith(("torch._dynamo", "torch._inductor"))]
print(before, hasattr(torch.nn.attention, "flex_attention"))
f = torch.compile(lambda x: (x + 1).sin() * 2)
print(f(torch.arange(4.0, device="sim")))
import causeway
from causeway import integrations
import re
report = str(causeway.compile_report()).partition("compiling took")[0]
print(re.sub(r"[0-9.]+ s\\b", "", report), integrations.state)
print(sorted(n for n in sys.modules if n.startswith("torch.")))
import torch._dynamo.config, torch._inductor.ir
for module in (torch._inductor.ir, torch._dynamo.config, torch._dynamo):
    print(module.__spec__.name, module.__spec__.origin, type(module.__spec__.loader))
print(type(torch._dynamo.code_context), torch._dynamo.reset())
print([f for f in map(type, sys.meta_path) if f.__module__ != "__main__"])
print([n for n, m in sys.modules.items() if m is None])
"""


def test_a_program_that_compiles_says_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert warm.COMPILES.search(COMPILED)
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    done = same(["-c", COMPILED], {"CAUSEWAY_SIM_CODE": "1"}, cwd=tmp_path)
    assert done.stdout.startswith("[] False\n")
    assert "fused_add_mul_sin_0" in done.stdout
    assert "torch.compile writes kernels for the device" in done.stdout


def test_a_program_that_does_not_end_is_killed_and_the_next_one_runs() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        warm.run(["-c", "import time; print('begun', flush=True); time.sleep(60)"], timeout=2)
    assert caught.value.output == "begun\n"
    assert warm.run(["-c", "print('next')"], timeout=60).stdout == "next\n"


def test_what_is_read_at_the_start_has_a_new_python(tmp_path: Path) -> None:
    parent = "import os; print(open(f'/proc/{os.getppid()}/cmdline').read())"
    assert SERVER in warm.run(["-c", parent]).stdout
    (tmp_path / "sitecustomize.py").write_text("")
    for variables in (
        {"PYTHONHASHSEED": "1"},
        {"OMP_NUM_THREADS": "7"},
        {"PYTHONPATH": str(tmp_path)},
    ):
        assert SERVER not in warm.run(["-c", parent], env=os.environ | variables).stdout
    (tmp_path / "sitecustomize.py").unlink()
    program = "import sys; print(sys.path[1])"
    done = warm.run(["-c", program], env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.stdout == f"{tmp_path}\n"


def test_a_change_that_stays_has_another_python_to_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = "import os; print(os.getppid(), open(f'/proc/{os.getppid()}/cmdline').read())"
    first = warm.run(["-c", parent]).stdout
    monkeypatch.setenv("TORCH_LOGS_OUT", "/dev/null")
    second = warm.run(["-c", parent]).stdout
    assert first.split()[0] != second.split()[0]
    assert SERVER in second


def test_two_programs_that_set_no_seed_draw_other_numbers() -> None:
    program = "import random, torch; print(random.random(), torch.rand(2), torch.initial_seed())"
    first, second = (warm.run(["-c", program]).stdout for _ in range(2))
    assert first.startswith("0.")
    assert not {*first.split()} & {*second.split()}
