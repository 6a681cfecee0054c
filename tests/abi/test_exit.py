"""A process ends cleanly and soon, whatever its streams hold."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

CASES = {
    "idle": "s = Sim(path, execution='async'); s.write(s.alloc(64), b'x')",
    "queued": """
s = Sim(path, execution='async', latency_us=2000000); a = s.alloc(64)
for _ in range(5): s.call('mem_set', 0, a, 1, 64, s.stream())
for _ in range(50): s.call('mem_set', 0, a, 1, 64, None)
""",
    "waiting": """
s = Sim(path, execution='async', latency_us=2000000); a = s.alloc(64); e = s.event()
s.call('mem_set', 0, a, 1, 64, None); s.call('event_record', 0, e, None)
s.call('stream_wait', 0, s.stream(), e)
""",
    "computing": """
s = Sim(path, execution='async', ops='all'); n = 700; a = s.alloc(n * n * 4)
t = DeviceTensor(a, 'float32', (n, n), (n, 1))
u = DeviceTensor(s.alloc(n * n * 4), 'float32', (n, n), (n, 1))
for _ in range(20): s.run('aten::mm.out', u, t, t)
""",
    "a host thread in sync": """
import threading
s = Sim(path, execution='async', latency_us=2000000); a = s.alloc(64)
s.call('mem_set', 0, a, 1, 64, None)
threading.Thread(target=s.sync, daemon=True).start()
""",
    "forked": """
import os
s = Sim(path, execution='async', latency_us=1000); s.write(s.alloc(64), b'x')
child = os.fork()
if child == 0: sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    "os._exit": """
import os
s = Sim(path, execution='async', latency_us=2000000)
s.call('mem_set', 0, s.alloc(64), 1, 64, None); os._exit(0)
""",
}


@pytest.mark.parametrize("case", CASES)
def test_exit_is_clean(run_python: Run, case: str) -> None:
    start = time.perf_counter()
    done = run_python(CASES[case], timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    # A sanitizer's process takes seven: tests/sanitizers/run.py sets the variable.
    assert time.perf_counter() - start < (15 if "CW_TEST_SIM_MEMORY" in os.environ else 5)
