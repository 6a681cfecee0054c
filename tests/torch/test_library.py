"""Operators of one's own, by torch.library: without a kernel of the device's, and with one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
import torch
from same import NAME

import causeway


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("causeway_test", "FRAGMENT") as made:
        yield made


def test_an_operator_with_a_cpu_kernel_alone_runs_on_the_host_rung(library) -> None:
    library.define("double(Tensor x, *, float by=2.0) -> Tensor")
    library.impl("double", lambda x, *, by=2.0: x * by, "CPU")
    x = torch.randn(3, 4)
    with causeway.ledger() as ledger:
        ours = torch.ops.causeway_test.double(x.to(NAME).t(), by=3.0)
    assert ours.device.type == NAME
    assert torch.equal(ours.cpu(), x.t() * 3)
    assert "causeway_test::double" in str(ledger.table())


def test_an_operator_that_writes_to_its_argument_runs_on_the_host_rung(library) -> None:
    library.define("fill_with(Tensor(a!) x, Scalar value) -> ()")

    def fill(x: torch.Tensor, value: float) -> None:
        x.fill_(value)

    library.impl("fill_with", fill, "CPU")
    x = torch.zeros(4, 4, device=NAME)
    torch.ops.causeway_test.fill_with(x[1:3, ::2], 5)
    expected = torch.zeros(4, 4)
    expected[1:3, ::2] = 5
    assert torch.equal(x.cpu(), expected)


def test_lists_and_several_results_cross_to_the_host_rung(library) -> None:
    library.define("spread(Tensor[] xs, Tensor? y, int[] n) -> (Tensor, Tensor[])")
    library.impl("spread", lambda xs, y, n: (sum(xs) + sum(n), [x + 1 for x in xs]), "CPU")
    xs = [torch.randn(3) for _ in range(3)]
    total, more = torch.ops.causeway_test.spread([x.to(NAME) for x in xs], None, [1, 2])
    torch.testing.assert_close(total.cpu(), sum(xs) + 3)
    for have, want in zip(more, xs, strict=True):
        assert torch.equal(have.cpu(), want + 1)


def test_a_kernel_for_the_device_comes_first(library) -> None:
    library.define("where_am_i(Tensor x) -> str")
    library.impl("where_am_i", lambda x: "host", "CPU")
    library.impl("where_am_i", lambda x: "device", "PrivateUse1")
    assert torch.ops.causeway_test.where_am_i(torch.ones(1, device=NAME)) == "device"
    assert torch.ops.causeway_test.where_am_i(torch.ones(1)) == "host"


@pytest.fixture(scope="module")
def cube():
    @torch.library.custom_op("causeway_test::cube", mutates_args=(), device_types="cpu")
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @cube.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def setup(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2

    cube.register_autograd(backward, setup_context=setup)
    cube.register_vmap(lambda info, in_dims, x: (cube(x), in_dims[0]))
    return cube


def test_custom_op_for_the_cpu_serves_the_device(cube) -> None:
    x = torch.randn(5)
    assert torch.equal(cube(x.to(NAME)).cpu(), cube(x))


def test_custom_op_has_its_gradient_on_the_device(cube) -> None:
    x = torch.randn(5, device=NAME, requires_grad=True)
    cube(x).sum().backward()
    assert x.grad.device.type == NAME
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_custom_op_under_vmap_compile_and_opcheck(cube) -> None:
    x = torch.randn(4, 3, device=NAME)
    torch.testing.assert_close(torch.func.vmap(cube)(x), x**3)
    compiled = torch.compile(lambda y: cube(y) + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), x**3 + 1)
    # The fourth check of opcheck knows the CPU, CUDA and XPU alone.
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(cube, (x.clone().requires_grad_(),), test_utils=checks)


def test_custom_op_with_a_kernel_for_the_device() -> None:
    calls = []

    @torch.library.custom_op("causeway_test::counted", mutates_args=(), device_types="cpu")
    def counted(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @counted.register_kernel(NAME)
    def _(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.device)
        return x + 2

    assert counted(torch.zeros(2, device=NAME)).tolist() == [2, 2]
    assert counted(torch.zeros(2)).tolist() == [1, 1]
    assert len(calls) == 1


def test_custom_op_that_mutates_is_seen_by_autograd() -> None:
    @torch.library.custom_op("causeway_test::bump", mutates_args=("x",), device_types="cpu")
    def bump(x: torch.Tensor) -> None:
        x.add_(1)

    x = torch.zeros(3, device=NAME)
    version = x._version
    bump(x)
    assert x.tolist() == [1, 1, 1]
    assert x._version > version


SOURCE = """
#include <torch/extension.h>
at::Tensor halved(const at::Tensor& x) { return x / 2; }
at::Tensor raw(const at::Tensor& x) {
  auto y = at::empty_like(x);
  for (int64_t i = 0; i < x.numel(); i++) y.data_ptr<float>()[i] = x.data_ptr<float>()[i] + 1;
  return y;
}
TORCH_LIBRARY(causeway_cpp, m) {
  m.def("halved(Tensor x) -> Tensor");
  m.def("raw(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(causeway_cpp, CompositeImplicitAutograd, m) { m.impl("halved", halved); }
TORCH_LIBRARY_IMPL(causeway_cpp, CPU, m) { m.impl("raw", raw); }
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("TEST_ALL"), reason="`make test-torch` runs it")
def test_a_cpp_extension_serves_the_device(tmp_path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    from torch.utils import cpp_extension

    cpp_extension.load_inline(
        "causeway_cpp", SOURCE, build_directory=str(tmp_path), is_python_module=False
    )
    x = torch.randn(6)
    there = x.to(NAME).requires_grad_()
    torch.ops.causeway_cpp.halved(there).sum().backward()
    assert there.grad.tolist() == [0.5] * 6
    with causeway.ledger() as ledger:
        assert torch.equal(torch.ops.causeway_cpp.raw(x.to(NAME)).cpu(), x + 1)
    assert "causeway_cpp::raw" in str(ledger.table())
