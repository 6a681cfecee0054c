"""Writes into memory that is read or written elsewhere in the same call: refused, warned of or
defined as on the CPU, on every rung.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import causeway


class On:
    """Tensors of one device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def ones(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.ones(shape, dtype=dtype, device=self.device)

    def range(self, n: int) -> Tensor:
        return torch.arange(1.0, n + 1, device=self.device)

    def rows(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """(3, 4), each row the same memory."""
        return torch.arange(4, device=self.device, dtype=dtype).expand(3, 4)

    def at(self, *index: int) -> Tensor:
        return torch.tensor(index, device=self.device)


Call = Callable[[On], Tensor]


def shifted(f: Callable[[Tensor, Tensor], Tensor]) -> Call:
    """f(written, read), which are nine elements of ten, the second from the next element on."""

    def call(on: On) -> Tensor:
        x = on.range(10)
        f(x[1:], x[:-1])
        return x

    return call


CALLS: dict[str, Call] = {
    "add_": lambda on: on.rows().add_(1),
    "add_ tensor": lambda on: on.rows().add_(on.ones(3, 4)),
    "sub_ int": lambda on: on.rows(torch.int64).sub_(on.ones(3, 4, dtype=torch.int64)),
    "relu_": lambda on: on.rows().relu_(),
    "copy_": lambda on: on.rows().copy_(on.ones(3, 4)),
    "fill_": lambda on: on.rows().fill_(1),
    "zero_": lambda on: on.rows().zero_(),
    "remainder_": lambda on: on.rows(torch.int32).remainder_(5),
    "masked_fill_": lambda on: on.rows().masked_fill_(on.ones(3, 4).bool(), 1),
    "index_put_": lambda on: on.rows().index_put_((on.at(0),), on.ones(4)),
    "index_add_": lambda on: on.rows().index_add_(0, on.at(0), on.ones(1, 4)),
    "index_copy_": lambda on: on.rows().index_copy_(0, on.at(0), on.ones(1, 4)),
    "index_fill_": lambda on: on.rows().index_fill_(0, on.at(0), 1),
    "scatter_": lambda on: on.rows().scatter_(0, on.at(0, 0, 0, 0)[None], on.ones(1, 4)),
    "scatter_add_": lambda on: on.rows().scatter_add_(0, on.at(0, 0, 0, 0)[None], on.ones(1, 4)),
    "_foreach_add_": lambda on: torch._foreach_add_([on.ones(3), on.rows()], 1),
    "_foreach_zero_": lambda on: torch._foreach_zero_([on.ones(3), on.rows()]),
    "add.out": lambda on: torch.add(on.ones(3, 4), 1, out=on.rows()),
    "mm.out": lambda on: torch.mm(on.ones(3, 4), on.ones(4, 4), out=on.rows()),
    "cumsum.out": lambda on: torch.cumsum(on.ones(3, 4), 0, out=on.rows()),
    "cumsum_": lambda on: on.rows().cumsum_(0),
    "lerp_": lambda on: on.rows().lerp_(on.ones(3, 4), 0.5),
    "addcmul_": lambda on: on.rows().addcmul_(on.ones(3, 4), on.ones(3, 4)),
    "cat.out": lambda on: torch.cat([on.ones(1, 4), on.ones(2, 4)], out=on.rows()),
    "gather.out": lambda on: torch.gather(on.ones(3, 4), 0, on.ones(3, 4).long(), out=on.rows()),
    "tril_": lambda on: on.ones(4).expand(4, 4).tril_(),
    "uniform_": lambda on: on.rows().uniform_(),
    "shifted add_": shifted(lambda a, b: a.add_(b)),
    "shifted copy_": shifted(lambda a, b: a.copy_(b)),
    "shifted copy_ of one": lambda on: (x := on.range(4)).copy_(x[0]),
    "shifted lerp_": shifted(lambda a, b: a.lerp_(b, 0.5)),
    "shifted add.out": shifted(lambda a, b: torch.add(b, b, out=a)),
    "shifted foreach": shifted(lambda a, b: torch._foreach_add_([a], [b])),
    "shifted cumsum.out": shifted(lambda a, b: torch.cumsum(b, 0, out=a)),
    "shifted masked_fill_": shifted(lambda a, b: a.masked_fill_(b.view(torch.int32).bool(), 1)),
    "shifted scatter_": shifted(lambda a, b: a.scatter_(0, torch.zeros_like(b).long(), b)),
    "itself, transposed": lambda on: (x := on.range(9).view(3, 3)).add_(x.t()),
    "itself, add_": lambda on: (x := on.range(9)).add_(x),
    "itself, index_add_": lambda on: (x := on.range(9)).index_add_(0, on.at(*range(9)), x),
    "itself, index_copy_": lambda on: (x := on.range(9)).index_copy_(0, on.at(*range(9)), x),
    "itself, gather": lambda on: torch.take_along_dim(
        x := on.range(9), on.at(*range(8, -1, -1)), 0, out=x
    ),
    "itself, index_select": lambda on: torch.index_select(
        x := on.range(3), 0, on.at(2, 1, 0), out=x
    ),
    "itself, take": lambda on: torch.take(x := on.range(3), on.at(2, 1, 0), out=x),
    "itself, cat": lambda on: torch.cat([(x := on.range(6))[:3], x[:3]], out=x),
    "itself, softmax": lambda on: torch.softmax(x := on.range(6).view(2, 3), 1, out=x),
    "itself, cumsum": lambda on: torch.cumsum(x := on.range(6), 0, out=x),
    "itself, sort": lambda on: torch.sort(-(x := on.range(6)), out=(x, on.at(*range(6))))[0],
    "itself, tril": lambda on: torch.tril(x := on.range(9).view(3, 3), out=x),
    "itself, addmm": lambda on: torch.addmm(
        x := on.range(4).view(2, 2), on.ones(2, 2), on.ones(2, 2), out=x
    ),
}


def outcome(call: Call, device: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call(On(device))
        except RuntimeError as error:
            return str(error)
    return [t.tolist() for t in found] if isinstance(found, (list, tuple)) else found.tolist()


@pytest.mark.parametrize("which", CALLS)
def test_as_on_the_cpu(name: str, which: str) -> None:
    assert outcome(CALLS[which], name) == outcome(CALLS[which], "cpu")


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")  # what the CPU's threads read of each other goes by chance
def test_a_kernel_does_not_read_what_it_wrote(name: str) -> None:
    """torch's CPU kernels of these do."""

    def product(x: Tensor) -> Tensor:
        return torch.mm(x, x, out=x)

    def largest(x: Tensor) -> Tensor:
        return torch.amax(x, 1, keepdim=True, out=x[:, :1])

    values = torch.arange(65 * 65).remainder(7).view(65, 65).float()
    for call, right in ((product, values @ values), (largest, values.amax(1, keepdim=True))):
        with causeway.ledger() as ledger:
            found = call(values.to(name)).cpu()
        on_host = any(row.rung == "host" for row in ledger.rows)
        assert torch.equal(found, call(values.clone()) if on_host else right)


@pytest.mark.parametrize("start", [0, 1, 17, 40])
def test_an_output_without_elements_grows_where_it_lies(name: str, start: int) -> None:
    """What else is in its memory stays; and the memory never shrinks under other tensors."""
    for grow in (
        lambda d, out: torch.sum(torch.ones(3, 4, device=d), 1, out=out),
        lambda d, out: torch.cumsum(torch.ones(9, device=d), 0, out=out),
        lambda d, out: torch.add(torch.ones(2, device=d), 1, out=out),
    ):
        found = []
        for device in ("cpu", name):
            x = torch.arange(40.0, device=device)
            out = x[start:start]
            grow(device, out)
            found.append(
                (x.tolist(), out.tolist(), out.storage_offset(), x.untyped_storage().nbytes())
            )
        assert found[0] == found[1]


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((1,), (2, 3)), ((), (2,)), ((3,), (1, 3))])
def test_a_copy_of_another_shape_is_refused_in_torchs_words(name: str, shapes: tuple) -> None:
    def words(device: str) -> str:
        to, source = (torch.zeros(shape, device=device) for shape in shapes)
        with pytest.raises(RuntimeError) as error:
            to.copy_(source)
        return str(error.value)

    assert words(name) == words("cpu")


# A kernel that works on a dense copy of the target has another order than the CPU's.
ON_A_DENSE_CHIP = """
import torch, causeway
def program(device):
    a, b, c, d, e = (torch.arange(12.0, device=device) for _ in range(5))
    a.unfold(0, 3, 1).add_(2)                        # elements of the target are each other
    b[2:10:2].mul_(b[0:8:2])                         # read after it is written, with gaps
    torch._foreach_add_([c.as_strided((2, 3), (1, 2))], 1.0)
    torch._foreach_add_([d.as_strided((3, 3), (2, 1))], 1.0)
    with causeway.ledger() as ledger:
        e[::2].add_(e[1::2])                         # beside each other: no overlap
        e.view(3, 4)[:, 1:3].mul_(2)
    return [t.cpu() for t in (a, b, c, d, e)], ledger
ours, ledger = program("sim")
theirs, _ = program("cpu")
for i, (x, y) in enumerate(zip(ours, theirs)):
    assert torch.equal(x, y), (i, x, y)
for operator in ("add_.Tensor", "mul_.Tensor"):  # the chip makes its dense copies as it likes
    assert ledger.total(operator=operator) == 1, ledger.table()
    assert not ledger.total(rung="host", operator=operator), ledger.table()
"""


@pytest.mark.once
@pytest.mark.parametrize("dense", ["0", "1"])
def test_overlaps_with_gaps_are_computed_as_on_the_cpu(run_python, dense: str) -> None:
    run_python(ON_A_DENSE_CHIP, CAUSEWAY_SIM_OPS="all", CAUSEWAY_SIM_DENSE=dense)


PROGRAMS = """
import sys; sys.path.append("tests")
from random_programs import shortest
wrong = [seed for seed in range(60) if shortest(seed, "sim") is not None]
assert not wrong, wrong
"""


@pytest.mark.once
def test_random_programs_on_a_chip_that_wants_dense_memory(run_python) -> None:
    run_python(PROGRAMS, CAUSEWAY_SIM_OPS="all", CAUSEWAY_SIM_DENSE="1")
