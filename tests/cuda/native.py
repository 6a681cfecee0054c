"""What the vendor asks of cuBLAS and cuDNN, on the device on paper with stand-ins for both.

`python native.py NAME ...`: runs the functions of these names; each raises where it is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F

import causeway

DEVICE = torch.accelerator.current_accelerator()


def moved(t: torch.Tensor) -> torch.Tensor:
    """`t` on the device with its own strides and offset: its whole storage goes there."""
    t = t.detach().resolve_conj().resolve_neg()
    if t.numel() == 0 or not t.untyped_storage().nbytes():
        there = t.to(DEVICE)
    else:
        size = t.untyped_storage().nbytes() // t.element_size()
        whole = torch.as_strided(t, (size,), (1,), 0).to(DEVICE)
        there = whole.as_strided(t.shape, t.stride(), t.storage_offset())
    return there


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def native(
    f: Callable[..., torch.Tensor], *args: torch.Tensor, rung: str = "native"
) -> torch.Tensor:
    """`f` there, equal to the CPU's; every product and convolution in it on this rung."""
    with causeway.ledger() as ledger:
        result = f(*map(moved, args))
    names = ("mm", "addmm", "bmm", "baddbmm", "addmv", "_int_mm", "convolution")
    rows = [r for r in ledger.rows if r.operator[6:].split(".")[0].rstrip("_") in names]
    assert rows, [r.operator for r in ledger.rows]
    wrong = [(r.operator, r.rung) for r in rows if r.rung not in (rung, "derived")]
    assert not wrong, wrong
    torch.testing.assert_close(result.cpu(), f(*args))
    return result


def strides() -> None:
    """Dense rows or columns, with room between them, of factors and result; else declined."""
    a, b = randn(20, 30), randn(30, 40, seed=1)
    factors = (
        lambda m: m,
        lambda m: m.t().contiguous().t(),
        lambda m: torch.cat([m, m], 1)[:, : m.shape[1]],
    )
    for left in factors:
        for right in factors:
            native(torch.mm, left(a), right(b))
    columns = torch.zeros(40, 20).t()
    out = native(lambda x, y, o: torch.mm(x, y, out=o), a, b, columns)
    assert out.stride() == (1, 20)
    native(torch.mm, a[:1], b)
    native(torch.mm, a, b[:, :1])
    native(torch.mm, a[::2], b[:, 3:9])
    native(torch.bmm, randn(3, 4, 5), randn(5, 3, 6, seed=1).transpose(0, 1))
    native(torch.bmm, randn(1, 4, 5).expand(3, 4, 5), randn(3, 5, 6, seed=1))
    native(torch.mv, a, b[:, 3])
    with causeway.ledger() as ledger:  # neither rows nor columns
        moved(randn(20, 60))[:, ::2] @ moved(b)
    assert [r.rung for r in ledger.rows if r.operator.startswith("aten::mm")] == ["host"]


def added() -> None:
    """What is added: as torch broadcasts it, in place, by factors; not read where beta is 0."""
    a, b, m = randn(4, 5), randn(5, 6, seed=1), randn(4, 6, seed=2)
    for c in (m[0], m[:1], m[:, :1], m):
        native(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), c, a, b)
    native(lambda c, a, b: c.addmm_(a, b, beta=0.5), m.clone(), a, b)
    native(lambda c, a, b: torch.addmm(c, a, b, beta=0), torch.full((4, 6), float("nan")), a, b)
    native(torch.baddbmm, randn(3, 1, 6), randn(3, 4, 5), randn(3, 5, 6))
    native(torch.baddbmm, randn(3, 4, 6), randn(3, 4, 5), randn(3, 5, 6))
    native(F.linear, randn(7, 5), randn(6, 5), randn(6))
    half = native(F.linear, randn(7, 5).half(), randn(6, 5).half(), randn(6).half())
    assert half.dtype == torch.float16
    big = torch.randint(-9, 9, (24, 16), dtype=torch.int8)
    native(torch._int_mm, big, big.t())


def channels_last() -> None:
    """Images with their channels last are taken as they are, and so are their results."""
    x, w, b = randn(2, 4, 9, 8), randn(6, 4, 3, 3, seed=1), randn(6, seed=2)
    for lay in (torch.contiguous_format, torch.channels_last):
        y = native(F.conv2d, x.to(memory_format=lay), w.to(memory_format=lay), b)
        assert y.is_contiguous(memory_format=lay)
    native(F.conv2d, x.to(memory_format=torch.channels_last), w, b)  # the weight is put in order
    native(F.conv2d, x[:, :, ::2, 1:], w, b)
    native(F.conv_transpose2d, randn(2, 6, 9, 8), w, b[:4].clone())
    y = x.to(memory_format=torch.channels_last).requires_grad_()
    results = []
    for where in ("cpu", DEVICE):
        leaves = [t.detach().to(where).requires_grad_() for t in (y, w, b)]
        out = F.conv2d(*leaves, stride=2, padding=1)
        with causeway.ledger() as ledger:  # an expanded gradient, as that of a sum is
            results.append(
                torch.autograd.grad(out, leaves, torch.tensor(0.5).to(where).expand_as(out))
            )
        rows = [r.rung for r in ledger.rows if "convolution" in r.operator]
        assert rows == ["native"] or where == "cpu"
    for cpu, there in zip(*results, strict=True):
        torch.testing.assert_close(there.cpu(), cpu)


def addresses() -> None:
    """Data that begins between multiples of 16 bytes is copied first, or left to another kernel."""
    base, flat = randn(1 + 2 * 4 * 9 * 8), randn(1 + 6 * 4 * 3 * 3, seed=1)
    for dtype in (torch.float32, torch.float16):
        x, w = base.to(dtype)[1:].view(2, 4, 9, 8), flat.to(dtype)[1:].view(6, 4, 3, 3)
        native(lambda x, w: F.conv2d(x, w, padding=1), x, w)
        leaves = [moved(t).requires_grad_() for t in (x, w)]
        assert all(t.data_ptr() % 16 for t in leaves)
        out = F.conv2d(*leaves, padding=1)
        grads = torch.autograd.grad(
            out, leaves, moved(torch.ones(1 + out.numel(), dtype=dtype)[1:]).view_as(out)
        )
        cpu = [t.float().requires_grad_() for t in (x, w)]
        expected = torch.autograd.grad(F.conv2d(*cpu, padding=1).sum(), cpu)
        for found, right in zip(grads, expected, strict=True):
            torch.testing.assert_close(found.cpu().float(), right, rtol=2e-2, atol=2e-2)
    native(F.conv2d, base[1:].view(2, 4, 9, 8)[:, :, ::2, 1:], flat[1:].view(6, 4, 3, 3))


def tf32() -> None:
    """float32 keeps its bits unless the program allows TF32; convolutions ask for both settings."""
    a, b = randn(8, 64), randn(64, 8, seed=1)
    x, w = randn(1, 2, 8, 8), randn(2, 2, 3, 3, seed=1)
    exact = (moved(a) @ moved(b)).cpu()
    torch.testing.assert_close(exact, a @ b)
    torch.set_float32_matmul_precision("high")
    try:
        rough = (moved(a) @ moved(b)).cpu()
        torch.testing.assert_close(rough, a @ b, rtol=1e-2, atol=1e-2)
        assert not torch.equal(rough, exact)
        double = a.double(), b.double()
        torch.testing.assert_close(torch.mm(*map(moved, double)).cpu(), torch.mm(*double))
        F.conv2d(moved(x), moved(w))
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        F.conv2d(moved(x), moved(w))
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    F.conv2d(moved(x), moved(w))


def deterministic() -> None:
    """Algorithms: what is not deterministic unless asked for, Winograd's never."""
    x, w = randn(1, 2, 8, 8), randn(2, 2, 3, 3, seed=1)
    native(F.conv2d, x, w)
    torch.use_deterministic_algorithms(True)
    native(F.conv2d, x, w)


def streams() -> None:
    """A stream of one's own has a handle of its own, and ends with it."""
    a, b = randn(8, 9), randn(9, 7, seed=1)
    for _ in range(3):
        stream = torch.Stream(DEVICE)
        with stream:
            c = moved(a) @ moved(b)
        stream.synchronize()
        torch.testing.assert_close(c.cpu(), a @ b)


def fails() -> None:
    """Without a driver a library's handle cannot be made: said once, and other kernels serve."""
    a, b = randn(8, 9), randn(9, 7, seed=1)
    for _ in range(3):
        native(torch.mm, a, b, rung="host")
        native(F.conv2d, randn(1, 2, 8, 8), randn(2, 2, 3, 3, seed=1), rung="host")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
