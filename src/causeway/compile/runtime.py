"""What a compiled graph's own module calls: its kernels, in one program a device.

The module that Inductor writes makes a `Program`, adds each kernel's text, and builds it once, in
parts that compile at the same time. From then on the module's names are the kernels themselves.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch

from causeway import _C
from causeway.compile import folds, report
from causeway.compile.dialect import FUNCTIONS, FUNCTIONS_F64
from causeway.compile.kernel_text import KernelText
from causeway.errors import CausewayError

_TOGETHER = 8  # kernels of one part: a part reads the dialect's own text once
_ROUNDS = 3  # of max-autotune, beside a first one that is not counted


class Product:
    """A call of a product, and what is done with its result: in the product's kernel where the
    ladder takes a portable one. With `measured`, the first call of some sizes takes the time of
    both ways, and those that follow go the faster one.
    """

    def __init__(self, program: Program, epilogue: Any, apart: KernelText, measured: bool) -> None:
        self.program = program
        self.epilogue = epilogue
        self.apart = apart
        self.measured = measured
        self.kernel: Any = None
        self.together: dict[tuple[torch.Size, ...], bool] = {}  # by sizes: whether that is faster

    def __call__(self, out: torch.Tensor, finish: tuple[Any, ...], apart: tuple[Any, ...]) -> None:
        """`finish`: the product's call and the epilogue's arguments; `apart`: those of the kernel
        of its own, with None for what the product is in."""
        if not self.measured:
            self._together(finish, apart)
        elif (sizes := self._sizes(out, finish)) in self.together:
            (self._together if self.together[sizes] else self._apart)(finish, apart)
        elif _C.is_capturing(self.program.device):
            self._together(finish, apart)
        else:
            self._measure(sizes, finish, apart)

    def _together(self, finish: tuple[Any, ...], apart: tuple[Any, ...]) -> bool:
        """Whether the product's kernel did it all."""
        result = self.epilogue(*finish)
        if result is not None:
            self._follow(result, apart)
        return result is None

    def _apart(self, finish: tuple[Any, ...], apart: tuple[Any, ...]) -> None:
        self._follow(finish[0](), apart)

    def _follow(self, result: torch.Tensor, apart: tuple[Any, ...]) -> None:
        if self.kernel is None:
            (self.kernel,) = _C.build_kernels(
                self.program.device, self.program.functions, [self.apart]
            )
        result = result.contiguous()
        self.kernel(*(result if a is None else a for a in apart))

    @staticmethod
    def _sizes(out: torch.Tensor, finish: tuple[Any, ...]) -> tuple[torch.Size, ...]:
        """Of what is written, and of what is read beside the product's operands."""
        return (out.shape, *(a.shape for a in finish[1:] if isinstance(a, torch.Tensor)))

    def _measure(
        self, sizes: tuple[torch.Size, ...], finish: tuple[Any, ...], apart: tuple[Any, ...]
    ) -> None:
        if not self._together(finish, apart):  # there is one way only
            self.together[sizes] = True
            return
        took: tuple[list[float], list[float]] = ([], [])
        for way in (self._apart, self._together, *(self._together, self._apart) * _ROUNDS):
            torch.accelerator.synchronize(self.program.device)
            begin = time.perf_counter()
            way(finish, apart)
            torch.accelerator.synchronize(self.program.device)
            took[way == self._apart].append(time.perf_counter() - begin)
        together, alone = (min(seconds[1:]) for seconds in took)
        self.together[sizes] = together <= alone
        report.measured(self.apart.name, sizes[0], together / max(alone, 1e-9))


class Program:
    """The kernels of one graph on one device."""

    def __init__(
        self,
        names: dict[str, Any],
        device: int,
        has_float64: bool,
        in_turn: bool,
        graph: str = "",
    ) -> None:
        self.names = names  # the globals of the graph's module
        self.device = device
        self.graph = graph
        self.own = FUNCTIONS + (FUNCTIONS_F64 if has_float64 else "")  # of an element
        self.functions = self.own + (folds.functions(has_float64) if in_turn else "")
        self.kernels: list[KernelText] = []
        self.products: dict[str, Product] = {}

    def add(
        self,
        name: str,
        parameters: Sequence[tuple[str, str, str]],
        cost: float,
        lanes: int,
        body: str,
        origins: Sequence[str] = (),
        lines: Sequence[str] = (),
        moved: tuple[int, int] = (0, 0),
    ) -> KernelText:
        """Take a kernel; its name stands for it once the program is built."""
        kernel = KernelText(
            name, list(parameters), body, cost, lanes, list(origins), list(lines), moved
        )
        self.kernels.append(kernel)
        return kernel

    def add_product(
        self,
        name: str,
        operator: str,
        parameters: Sequence[tuple[str, str, str]],
        row: str,
        body: str,
        apart_parameters: Sequence[tuple[str, str, str]],
        apart_cost: float,
        apart_body: str,
        origins: Sequence[str] = (),
        lines: Sequence[str] = (),
        measured: bool = False,
    ) -> None:
        """Take what follows a product: the epilogue of the operator's kernel, and the kernel of its
        own that does the same to what lies in memory. `measured`: the faster way is taken."""
        apart = KernelText(
            name, list(apart_parameters), apart_body, apart_cost, 0, list(origins), list(lines)
        )
        epilogue = KernelText(name, list(parameters), body, 1.0)
        made = _C.epilogue(self.device, operator, self.own, row, epilogue)
        self.products[name] = Product(self, made, apart, measured)

    def build(self) -> None:
        """Compile all kernels, and put them under their names. Raises CausewayError with the
        compiler's message."""
        self.names.update(self.products)
        parts = [self.kernels[i :: self._parts()] for i in range(self._parts())]
        failed: list[BaseException] = []

        def work(part: list[KernelText]) -> None:
            try:
                for kernel, made in zip(
                    part, _C.build_kernels(self.device, self.functions, part), strict=True
                ):
                    self.names[kernel.name] = made
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(part,)) for part in parts[1:] if part]
        for thread in threads:
            thread.start()
        if parts and parts[0]:
            work(parts[0])
        for thread in threads:
            thread.join()
        if failed:
            names = ", ".join(kernel.name for kernel in self.kernels)
            raise CausewayError(
                "torch.compile: the device's compiler does not build the kernels of a graph "
                f"({names}): {failed[0]}"
            ) from failed[0]

    def source(self) -> str:
        """The whole text that the device's compiler gets."""
        return _C.compiled_source(self.device, self.functions, self.kernels)

    def _parts(self) -> int:
        most = max(1, min(4, os.cpu_count() or 1))
        return max(1, min(most, (len(self.kernels) + _TOGETHER - 1) // _TOGETHER))


def laid_out(
    tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], operator: str
) -> torch.Tensor:
    """An operator's result in the strides that the graph was compiled for. Raises where it has
    another size."""
    try:
        torch._C._dynamo.guards.assert_size_stride(tensor, tuple(size), tuple(stride))
    except AssertionError:
        if tuple(tensor.shape) != tuple(size):
            raise CausewayError(
                f"torch.compile: {operator} returned {tuple(tensor.shape)}, and its meta kernel "
                f"says {tuple(size)}"
            ) from None
        report.restrided(operator)
        promised = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
        return promised.copy_(tensor)
    return tensor


def build(names: dict[str, Any]) -> None:
    """Build all programs of a graph's module, whose globals are `names`, and report them."""
    programs = [value for value in names.values() if isinstance(value, Program)]
    start = time.perf_counter()
    for program in programs:
        program.build()
    report.built(programs, names, time.perf_counter() - start)
