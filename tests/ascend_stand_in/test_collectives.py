"""The stand-in libhccl between two processes."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., str]

# Starts itself again as rank 1: `hccl`, `root`, `rank`, and `other`, the process of rank 1.
TWO = """
    import os, subprocess, sys
    rank = int(os.environ.get("RANK", 0))
    ops, hccl, root = operators(rank), Library("libhccl.so"), create_string_buffer(4108)
    if rank:
        root.raw = bytes.fromhex(os.environ["ROOT"])
    else:
        hccl.HcclGetRootInfo(root)
        named = dict(os.environ, RANK="1", ROOT=root.raw.hex())
        other = subprocess.Popen([sys.executable, "-S", "-c", sys.orig_argv[-1]], env=named)
    comm = c_void_p()
    hccl.HcclCommInitRootInfo(c_uint32(2), root, c_uint32(rank), byref(comm))
"""


def test_two_processes_add_up(on_chip: Run) -> None:
    assert (
        on_chip(
            TWO
            + """
    x = ops.tensor([rank + 1.0] * 100_000, [100_000])
    hccl.HcclAllReduce(x.address, x.address, c_uint64(100_000), 4, 0, comm, None)
    ops.acl.aclrtSynchronizeDevice()
    assert ops.values(x) == [3.0] * 100_000
    hccl.HcclCommDestroy(comm)
    if rank == 0:
        print(other.wait())
    """
        )
        == "0"
    )


def test_a_rank_that_nobody_meets_gives_up(on_chip: Run) -> None:
    assert "waited 1 s" in on_chip(
        """
        ops, hccl, root, comm = operators(), Library("libhccl.so"), create_string_buffer(4108), c_void_p()
        hccl.HcclGetRootInfo(root)
        print(refused(9, hccl.HcclCommInitRootInfo, c_uint32(2), root, c_uint32(0), byref(comm)))
    """,
        HCCL_TIMEOUT=1,
    )


def test_a_reduction_that_hccl_lacks_is_refused(on_chip: Run) -> None:
    assert "reduction 4" in on_chip("""
        ops, hccl, root, comm = operators(), Library("libhccl.so"), create_string_buffer(4108), c_void_p()
        hccl.HcclGetRootInfo(root)
        hccl.HcclCommInitRootInfo(c_uint32(1), root, c_uint32(0), byref(comm))
        x = ops.tensor([1], [1])
        print(refused(1, hccl.HcclAllReduce, x.address, x.address, c_uint64(1), 4, 4, comm, None))
    """)
