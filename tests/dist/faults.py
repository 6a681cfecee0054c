"""One rank meets what its peer does wrong: `faults.py WHAT RANK FOLDER`. Prints what it caught."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

what, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
timeout = timedelta(seconds=float(os.environ.get("FAULT_TIMEOUT", "6")))
dist.init_process_group(
    init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timeout
)
t = torch.ones(1000, device="sim:0")
dist.all_reduce(t)  # all is well
assert t[0].item() == 2


def caught(call):
    start = time.monotonic()
    try:
        call()
        torch.accelerator.synchronize()
    except Exception as error:
        print(f"caught {type(error).__name__}: {error}", flush=True)
        assert time.monotonic() - start < 60
        return True
    print("nothing was wrong", flush=True)
    return False


def abort_from_another_thread():
    import threading

    group = dist.group.WORLD._get_backend(torch.device("sim"))
    threading.Timer(1, group.abort).start()  # the simulated chip may do its work in the call
    dist.all_reduce(t, async_op=True).wait()


if what == "late" and rank == 1:
    time.sleep(3 * timeout.total_seconds())
elif what == "ends" and rank == 1:
    os._exit(0)
elif what == "destroy":  # while the device is still behind
    for _ in range(20):
        dist.all_reduce(t)
    dist.destroy_process_group()
    print(f"the sum is {t[0].item() / 2**21}", flush=True)
elif what == "other":
    caught(lambda: dist.all_reduce(t) if rank == 0 else dist.broadcast(t, 0))
elif what == "abort":
    if rank == 1:
        time.sleep(5)
        os._exit(0)
    caught(abort_from_another_thread)
else:  # what the simulated chip was told to do in its second collective, too
    if caught(lambda: dist.all_reduce(t)):
        caught(lambda: dist.all_reduce(t))
os._exit(0)
