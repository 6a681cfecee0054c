"""Export for a chip that is not here: its vendor has a device on paper, which compiles and runs no
kernel. What the model computes there is nothing, so the numbers of the file are the CPU's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from causeway import _C
from causeway.errors import CausewayError
from causeway.ship import file
from causeway.ship.plan import Program


def on_paper(index: int = 0) -> bool:
    """Whether device `index` accepts kernels and runs none."""
    return _C.device_count() > index and _C.device_attribute(index, "on_paper") == 1


def expect(architecture: str) -> None:
    """Raises CausewayError unless device 0 is one on paper, of this architecture."""
    vendor = _C.vendor_state()["name"]
    if not on_paper():
        raise CausewayError(
            f"{vendor} has no device on paper, so nothing is exported for a chip that is not here: "
            f"leave out :{architecture}, where the chip is"
        )
    if (found := _C.device_attribute(0, "architecture")) != architecture:
        raise CausewayError(f"the device on paper is {found}, and {architecture} was asked for")


class Model:
    """A model on the CPU, with what it computes there, and its copy on a device on paper.

    Raises:
        CausewayError: it is not all on the CPU, or writes to its inputs, parameters or buffers.
    """

    def __init__(
        self,
        module: Callable[..., Any],
        leaves: Sequence[torch.Tensor],
        spec: Any,
        names: list[str],
    ) -> None:
        self.device = torch.device(torch._C._get_privateuse1_backend_name(), 0)
        own = _tensors(module)
        for tensor in [*leaves, *own]:
            if tensor.device.type != "cpu":
                raise CausewayError(
                    f"{_C.device_info(0)['name']} runs no kernel, so what was made on it has no "
                    f"numbers: give the model and its arguments on the CPU, not on {tensor.device}"
                )
        before = [file.raw(t) for t in [*leaves, *own]]
        with torch.no_grad():
            found = pytree.tree_leaves(module(*pytree.tree_unflatten(list(leaves), spec)))
        self.outputs = [t.detach().contiguous() for t in found]
        titles = [
            *(f"its input {name!r}" for name in names),
            *["its own buffers or parameters"] * len(own),
        ]
        for title, old, tensor in zip(titles, before, [*leaves, *own], strict=True):
            if old != file.raw(tensor):
                raise CausewayError(
                    f"the model writes to {title}: clone it first, and return what changed"
                )
        self.leaves = [leaf.to(self.device) for leaf in leaves]
        self.module = module
        if isinstance(module, torch.nn.Module):
            self.module = copy.deepcopy(module).to(self.device)
        self._there = _tensors(self.module)

    def check(self, program: Program, outputs: Sequence[torch.Tensor]) -> None:
        """That the program's weights are the model's, which were copied there, and its outputs
        those of the CPU but for their numbers.
        """
        storages = [t.untyped_storage() for t in self._there]
        reach = [(s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages]
        for buffer in program.weights():
            if not any(a <= buffer.start and buffer.start + buffer.bytes <= b for a, b in reach):
                raise CausewayError(
                    f"{buffer.bytes} bytes that the model reads are no parameter and no buffer of "
                    "it, so a device on paper may not have their numbers: register them with "
                    "register_buffer, or export where the chip is"
                )
        mine, yours = ([(t.shape, t.dtype) for t in side] for side in (self.outputs, outputs))
        if mine != yours:
            raise CausewayError(
                f"the model's outputs are {mine} on the CPU and {yours} on the chip"
            )


def _tensors(module: Any) -> list[torch.Tensor]:
    if not isinstance(module, torch.nn.Module):
        return []
    return [t for t in [*module.parameters(), *module.buffers()] if t.numel()]
