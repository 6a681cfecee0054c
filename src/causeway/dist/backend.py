"""The backend of torch.distributed that serves the device, made known to torch.

`register` runs at the end of `import torch` and only enters names in torch's tables; the rest is
done when a process group is made. The work is C++ (csrc/comm/backend.h).
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import socket
import time
import uuid
import warnings
from datetime import timedelta
from typing import Any

from causeway import config
from causeway.errors import CausewayError

NAME = "cwcl"
# What an explicit gloo gets for tensors of the device: torch's own gloo takes those of the CPU and of CUDA.
BESIDE_GLOO = "cwgloo"
_closing: list[bool] = []
_start = ""  # what the stores of this start are named by


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
    if BESIDE_GLOO not in dist.Backend.backend_list:
        dist.Backend.register_backend(
            BESIDE_GLOO, _beside_gloo, extended_api=True, devices=[device]
        )


def serve_beside_gloo(backends: dict[str, Any], asked: str, device: str) -> None:
    """Give the device its part in a group that the program `asked` gloo for: "gloo", or
    "<device>:gloo" among others. `backends` are torch's, by kind of device; the CPU keeps torch's gloo.
    """
    import torch.distributed as dist

    if asked.lower() == "gloo" or str(backends.get(device)) == "gloo":
        backends[device] = dist.Backend(BESIDE_GLOO)


def _beside_gloo(options: Any, backend_options: Any) -> Any:
    """Through a gloo of its own, since the order of its collectives and those of the CPU's may
    differ between ranks: the device works later than the host.
    """
    return _create("gloo", options, backend_options, through_host=True)


def _creator(name: str) -> Any:
    def create(options: Any, backend_options: Any) -> Any:
        """The whole process group, however it was asked for.

        torch makes a group for the accelerator alone where no backend is named, and for each kind of
        device where one is. A group of our making serves the device and the CPU either way; the
        device_id= of init_process_group reaches it by eager_connect_single_device.
        """
        import torch.distributed as dist

        from causeway import _C

        backend = seen = _create(name, options, backend_options)
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            from torch.distributed import distributed_c10d

            # torch does so itself with a backend that it puts into a group of its own making.
            seen = distributed_c10d._create_process_group_wrapper(
                wrapped_pg=backend,
                store_prefix=str(options.group_id),
                store=options.store,
                rank=options.group_rank,
                world_size=options.group_size,
                timeout=_duration(options.timeout),
            )
        return _C.comm_group(backend, seen)

    return create


def _duration(timeout: Any) -> timedelta:
    return timeout if isinstance(timeout, timedelta) else timedelta(seconds=float(timeout))


def _create(
    name: str, options: Any, backend_options: Any, *, through_host: bool = False
) -> Any:
    import torch.distributed as dist

    from causeway import _C

    if not dist.is_gloo_available():
        raise CausewayError(f"backend {name} needs gloo, which this build of torch lacks")
    if backend_options is not None and not isinstance(backend_options, _C.CommGroupOptions):
        warnings.warn(
            f"backend {name} has no options of its own: what pg_options has "
            f"({type(backend_options).__name__}) is not read; `causeway config` lists the comm_ "
            "settings",
            stacklevel=4,
        )
    if not _closing:
        _closing.append(True)
        atexit.register(_C.close_comm)
    return _C.comm_backend(
        _store_of_this_start(options),
        options.group_rank,
        options.group_size,
        _duration(options.timeout),
        _gloo,
        name,
        str(options.group_id),
        list(options.global_ranks_in_group),
        config.get("comm_chunk") << 20,
        config.get("comm_blocking"),
        config.get("comm_debug"),
        through_host,
    )


def _store_of_this_start(options: Any) -> Any:
    """The group's store, under a name that the processes of this start alone know.

    torchrun keeps its store when it starts workers anew, and with it the addresses of those that
    died: whoever comes first would call them. TORCHELASTIC_RESTART_COUNT may differ between hosts.
    """
    import torch.distributed as dist

    global _start
    if not dist.is_torchelastic_launched():
        return options.store
    if not options.global_ranks_in_group:  # the world
        _start = _agree(options.store, options.group_rank, options.group_size, options.timeout)
    return dist.PrefixStore(f"start-{_start}/", options.store)


def _agree(store: Any, rank: int, size: int, timeout: Any) -> str:
    """A word that all ranks have, and none of an earlier start: rank 0 answers to a mark that each
    rank has just made, and begins again while a mark still changes.
    """
    until = time.monotonic() + _duration(timeout).total_seconds()
    mine, others = uuid.uuid4().hex, range(1, size)

    def said(key: str) -> str:
        return str(store.get(key).decode()) if store.check([key]) else ""

    def wait() -> None:
        if time.monotonic() > until:
            raise CausewayError(
                f"rank {rank} of {size} waited {_duration(timeout)} for the other ranks to start; "
                "is there one that ended?"
            )
        time.sleep(0.005)

    if rank:
        store.set(f"mark/{rank}", mine)
        while True:
            word, *marks = (said("word") or "-").split(",")
            if mine in marks:
                store.set(f"heard/{rank}", word)
                if said("go") == word:
                    return word
            wait()
    while True:
        marks = [said(f"mark/{r}") for r in others]
        word = uuid.uuid4().hex
        store.set("word", ",".join([word, *marks]))
        while marks == [said(f"mark/{r}") for r in others]:
            if all(said(f"heard/{r}") == word for r in others):
                store.set("go", word)
                return word
            wait()


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """gloo, bound to the address that leads to the other hosts.

    By itself it takes the one that the host's name has, and loopback where that has none, which no
    other host reaches. GLOO_SOCKET_IFNAME is the user's word and goes before.
    """
    import torch.distributed as dist

    address = "" if os.environ.get("GLOO_SOCKET_IFNAME") else _address_towards_the_others()
    if not address:
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    gloo: Any = dist.ProcessGroupGloo  # torch's stubs lack its options
    options = gloo._Options()
    options._timeout = timeout
    options._devices = [gloo.create_device(hostname=address)]
    return gloo(store, rank, size, options)


def _address_towards_the_others() -> str:
    """This host's address on the way to MASTER_ADDR; "" where gloo's own choice is as good."""
    master = os.environ.get("MASTER_ADDR", "")
    try:
        family, kind, _, _, place = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as s:
            s.connect(place)  # of datagrams: nothing is sent
            address = str(s.getsockname()[0])
    except OSError:
        return ""
    return "" if not master or ipaddress.ip_address(address.split("%")[0]).is_loopback else address


def report(group: Any = None) -> str:
    """One line on `group` (default: the world): its ranks, their hosts, and what collectives on tensors
    of the device go by, with the reason where that is not the vendor.
    """
    from causeway import _C

    return str(_C.comm_report(_backend_of(group)))


def routes(group: Any = None) -> dict[str, str]:
    """Which way each collective of `group` goes for tensors of the device: `native` (by the vendor),
    `host` (by gloo), or the vendor's others that it is put together from.
    """
    from causeway import _C

    return dict(_C.comm_routes(_backend_of(group)))


def _backend_of(group: Any) -> Any:
    import torch
    import torch.distributed as dist

    group = group or dist.group.WORLD
    if group is None:
        raise CausewayError("there is no process group; call init_process_group first")
    backend = group._get_backend(torch.device(torch._C._get_privateuse1_backend_name()))
    while isinstance(backend, dist.distributed_c10d._ProcessGroupWrapper):
        backend = backend.wrapped_pg
    return backend
