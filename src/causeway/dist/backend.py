"""The backend of torch.distributed that serves the device, made known to torch.

`register` runs at the end of `import torch` and only enters names in torch's tables; the rest is
done when a process group is made. The work is C++ (csrc/comm_backend.h).
"""

from __future__ import annotations

import atexit
import sys
from datetime import timedelta
from typing import Any

from causeway import config
from causeway.errors import CausewayError

NAME = "cwcl"
_closing: list[bool] = []


def names() -> list[str]:
    """The names under which torch.distributed finds the backend, `cwcl` first."""
    wanted = [name.lower() for name in config.get("comm_names")]
    return [NAME, *(name for name in wanted if name != NAME)]


def register(device: str) -> None:
    """Enter the backend in torch.distributed's tables as the one for tensors of `device`."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    for name in names():
        if name in dist.Backend.backend_list:
            if name != NAME:
                raise CausewayError(
                    f"CAUSEWAY_COMM_NAMES has {name!r}, a backend that torch.distributed has "
                    "already; choose another name"
                )
            continue
        dist.Backend.register_backend(
            name, _creator(name), extended_api=True, devices=[device, "cpu"]
        )


def _creator(name: str) -> Any:
    def create(options: Any, backend_options: Any) -> Any:
        # What init_process_group was asked for is nowhere but in the caller.
        asked = sys._getframe(1).f_locals
        backend = _create(name, options, asked.get("device_id"))
        # Without a backend and a device it asks for one for the accelerator alone, and then looks
        # for gloo in the group. A group of our making serves the CPU too.
        return _whole_group(options, backend) if asked.get("backend") == "undefined" else backend

    return create


def _create(name: str, options: Any, device: Any) -> Any:
    import torch.distributed as dist

    from causeway import _C

    if not dist.is_gloo_available():
        raise CausewayError(f"backend {name} needs gloo, which this build of torch lacks")
    if not _closing:
        _closing.append(True)
        atexit.register(_C.close_comm)
    timeout = options.timeout
    if not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=float(timeout))
    rank, size = options.group_rank, options.group_size
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", options.store), rank, size, timeout)
    return _C.comm_backend(
        dist.PrefixStore("cwcl/", options.store),
        rank,
        size,
        timeout,
        gloo,
        name,
        str(options.group_id),
        list(options.global_ranks_in_group),
        config.get("comm_chunk") << 20,
        config.get("comm_blocking"),
        config.get("comm_debug"),
        -1 if device is None else device.index,
    )


def _whole_group(options: Any, backend: Any) -> Any:
    import torch
    import torch.distributed as dist

    group: Any = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    kind = dist.ProcessGroup.BackendType.CUSTOM
    for device in (torch._C._get_privateuse1_backend_name(), "cpu"):
        group._register_backend(torch.device(device), kind, backend)
    group._set_default_backend(kind)
    return group


def routes(group: Any = None) -> dict[str, str]:
    """Which way each collective of `group` goes for tensors of the device: `native` (by the vendor),
    `host` (by gloo), or the vendor's others that it is put together from.
    """
    import torch
    import torch.distributed as dist

    from causeway import _C

    group = group or dist.group.WORLD
    if group is None:
        raise CausewayError("there is no process group; call init_process_group first")
    device = torch.device(torch._C._get_privateuse1_backend_name())
    return dict(_C.comm_routes(group._get_backend(device)))
