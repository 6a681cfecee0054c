"""The typed names of old code: torch.<name>.FloatTensor, torch.<name>.FloatStorage and their like.

`x.type(torch.sim.FloatTensor)`, `isinstance(x, torch.sim.FloatTensor)` and
`torch.sim.FloatTensor(2, 3)` work as they do for torch.cuda. What cannot:
torch.set_default_tensor_type, which torch closed to all but its own types; use
torch.set_default_device.
"""

from __future__ import annotations

from functools import cache
from types import new_class
from typing import Any, NoReturn

import torch
import torch.storage

from causeway.device.lazy import device_name

DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class TensorType(type):
    """The type of these types."""

    dtype: torch.dtype
    layout = torch.strided
    is_cuda = False
    is_sparse = False

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == device_name()
            and instance.dtype == cls.dtype
        )

    def __call__(cls, *args: Any) -> torch.Tensor:
        if not args:
            sizes: Any = (0,)
        elif all(isinstance(arg, int) for arg in args):
            sizes = args
        elif len(args) == 1 and isinstance(args[0], torch.Size):
            sizes = args[0]
        elif len(args) == 1:
            return torch.as_tensor(args[0], dtype=cls.dtype, device=device_name())
        else:
            raise TypeError(f"{cls.__name__} takes sizes, a sequence or a tensor, not {args!r}")
        return torch.empty(sizes, dtype=cls.dtype, device=device_name())

    def __repr__(cls) -> str:
        return f"<class '{cls.__name__}'>"


@cache
def tensor_type(name: str) -> TensorType:
    """The type called `name`."""
    # The dots are part of the name: torch finds device and dtype in it when it is given to
    # Tensor.type().
    return TensorType(f"torch.{device_name()}.{name}", (), {"dtype": DTYPES[name]})


STORED = {
    **{name.replace("Tensor", "Storage"): dtype for name, dtype in DTYPES.items()},
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
}


class _Storage(torch.storage._LegacyStorage):
    """What torch.<name>'s storages have in common, as torch.cuda's do."""

    @classmethod
    def from_buffer(cls, *args: object, **options: object) -> NoReturn:
        """Refused, as by torch.cuda: a buffer is memory of the host."""
        raise RuntimeError(f"{cls.__name__}.from_buffer reads memory of the host; make the storage "
                           "on the CPU and copy it")  # fmt: skip


@cache
def storage_type(name: str) -> type:
    """The type called `name`: `torch.sim.FloatStorage(4)` has four elements on the device."""
    dtype = STORED[name]
    # torch takes the device from the last part of the module's name.
    body = {"__module__": f"torch.{device_name()}", "dtype": dtype, "_dtype": dtype}
    return new_class(name, (_Storage,), exec_body=lambda members: members.update(body))
