"""Arguments made twice, on the CPU and on the device, and results compared to the last bit.

`Copies` gives tensors of one place which are to each other what the given ones are: the same object
stays one object, views of one storage stay views of one storage, conjugate and negative bits and
strides stay. `differences` compares what two calls gave: values with the places of NaN and Inf,
dtype, shape, strides, offset, view or not, bits, requires_grad, and which results share memory with
which arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

NAME = torch._C._get_privateuse1_backend_name()
SEED = 7

# Where the device runs another kernel than the CPU: relative and absolute.
CLOSE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (4e-3, 1e-3),
    torch.bfloat16: (3.2e-2, 1e-2),
    torch.complex128: (1e-7, 1e-7),
    torch.complex64: (1e-5, 1e-5),
    torch.complex32: (4e-3, 1e-3),
}


@dataclass(frozen=True)
class Host:
    """An argument that is a tensor on the CPU whatever the device."""

    tensor: Tensor


class Copies:
    """Copies of arguments in one place, alike in memory to the originals."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.storages: dict[int, Any] = {}
        self.tensors: dict[int, Tensor] = {}

    def of(self, given: Any) -> Any:
        """The same arguments here: tensors copied, names of devices changed, the rest as it is."""
        if isinstance(given, Tensor):
            return self._tensor(given)
        if isinstance(given, Host):
            return given.tensor.clone()
        if type(given) in (list, tuple):
            return type(given)(self.of(x) for x in given)
        if hasattr(given, "_fields"):  # a named tuple
            return type(given)(*(self.of(x) for x in given))
        if isinstance(given, dict):
            return {key: self.of(value) for key, value in given.items()} | self._device(given)
        if isinstance(given, torch.device):
            return torch.device(self.place)
        return given

    def _device(self, given: dict[Any, Any]) -> dict[str, str]:
        return {"device": self.place} if given.get("device") is not None else {}

    def _tensor(self, given: Tensor) -> Tensor:
        copy = self.tensors.get(id(given))
        if copy is None:
            copy = self.tensors[id(given)] = self._copy(given)
            copy.requires_grad_(given.requires_grad)
        return copy

    def _copy(self, given: Tensor) -> Tensor:
        plain = given.detach()
        if plain.is_meta:
            return plain
        if plain.layout != torch.strided or plain.is_quantized or plain.is_nested:
            return plain.clone() if self.place == "cpu" else plain.to(self.place)
        conjugate, negative = plain.is_conj(), plain.is_neg()
        storage = plain.untyped_storage()
        key = storage._cdata
        if key not in self.storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            copied = whole.clone() if self.place == "cpu" else whole.to(self.place)
            self.storages[key] = (copied.untyped_storage(), storage)  # the key lives as long
        copy = torch.empty(0, dtype=plain.dtype, device=self.place)
        copy.set_(self.storages[key][0], plain.storage_offset(), plain.size(), plain.stride())
        copy = copy.conj() if conjugate else copy
        return torch._neg_view(copy) if negative else copy


class Gradients(list[Any]):
    """Results of autograd: whether one is a view says only how it was summed."""


def tensors(given: Any) -> Iterator[Tensor]:
    """All tensors of nested lists, tuples and dictionaries, in order."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, list | tuple):
        for x in given:
            yield from tensors(x)
    elif isinstance(given, dict):
        for x in given.values():
            yield from tensors(x)


def numel(x: Tensor) -> int:
    return x.numel() if not x.is_nested else x._nested_tensor_size().prod(1).sum().item()


def weights(result: Tensor) -> Tensor:
    """An incoming gradient: of a size like 1, another for each element, equal on both sides."""
    numbers = torch.arange(numel(result), dtype=torch.float64).remainder(7) / 4 - 0.6
    return numbers.to(result.dtype).view(result.shape).to(result.device, copy=True)


def sharing(results: list[Tensor], arguments: list[Tensor]) -> list[tuple[int, ...]]:
    """For each result the numbers of the arguments and earlier results in whose memory it lies."""
    keys = [_memory(x) for x in (*arguments, *results)]
    count = len(arguments)
    return [
        tuple(j for j in range(count + i) if keys[j] and keys[j] == keys[count + i])
        for i in range(len(results))
    ]


def _memory(x: Tensor) -> int:
    if (
        x.layout != torch.strided
        or x.is_nested
        or torch._C._functorch.is_functorch_wrapped_tensor(x)
    ):
        return 0
    storage = x.untyped_storage()
    return storage._cdata if storage.nbytes() else 0


def differences(
    want: Any, have: Any, *, values: bool = True, views: bool = True, times: float = 1
) -> tuple[str, bool]:
    """What the device's is otherwise than the CPU's, and whether they are equal to the bit."""
    if isinstance(want, Tensor) and isinstance(have, Tensor):
        return _tensors(want, have, values, views, times)
    if isinstance(want, list | tuple) and isinstance(have, list | tuple):
        if type(want) is not type(have) or len(want) != len(have):
            return (
                f"{type(have).__name__} of {len(have)}, not {type(want).__name__} of {len(want)}",
                False,
            )
        views = views and not isinstance(want, Gradients)
        exact = True
        for i, (w, h) in enumerate(zip(want, have, strict=True)):
            words, equal = differences(w, h, values=values, views=views, times=times)
            exact &= equal
            if words:
                return f"[{i}]: {words}", False
        return "", exact
    if isinstance(want, dict) and isinstance(have, dict):
        pairs = [*want.items()], [*have.items()]
        return differences(*pairs, values=values, views=views, times=times)
    if isinstance(want, torch.device) and isinstance(have, torch.device):
        return ("", True) if have.type == NAME else (f"device {have}", False)
    if isinstance(want, torch.storage.TypedStorage | torch.UntypedStorage):
        return "", True
    nan = isinstance(want, float) and want != want and have != have
    if type(want) is type(have) and (nan or not values or want == have):
        return "", True
    return f"{have!r}, not {want!r}", False


def _traits(x: Tensor) -> dict[str, Any]:
    traits = {
        "dtype": x.dtype,
        "layout": x.layout,
        "shape": x._nested_tensor_size().tolist() if x.is_nested else tuple(x.shape),
        "requires_grad": x.requires_grad,
        "is_leaf": x.is_leaf,
        "is_view": x._is_view(),
        "conj": x.is_conj(),
        "neg": x.is_neg(),
        "quantized": x.is_quantized,
        "type": type(x).__name__,
    }
    if x.layout == torch.strided and not x.is_nested:
        traits["strides"] = x.stride()
        traits["offset"] = x.storage_offset()
    elif x.layout == torch.sparse_coo:
        traits["coalesced"] = x.is_coalesced()
    return traits


def _tensors(
    want: Tensor, have: Tensor, values: bool, views: bool, times: float
) -> tuple[str, bool]:
    if have.device.type != NAME:
        return f"is on {have.device}", False
    ours, theirs = _traits(have), _traits(want)
    if not views:
        ours["is_view"] = theirs["is_view"]
    if ours != theirs:
        found = [f"{k} {ours.get(k)}, not {v}" for k, v in theirs.items() if ours.get(k) != v]
        return ", ".join(found), False
    if not values:
        return "", True
    return numbers(want, have.detach().cpu(), times)


def numbers(want: Tensor, have: Tensor, times: float) -> tuple[str, bool]:
    """How the numbers of two tensors on the CPU differ, and whether their bits are equal."""
    want = want.detach()
    if want.layout == torch.strided and not want.is_nested and not want.is_quantized:
        if same_bits(want, have):
            return "", True
        if not (want.is_floating_point() or want.is_complex()):
            return f"values differ: {_short(have)}, not {_short(want)}", False
    rtol, atol = CLOSE.get(want.dtype, (0.0, 0.0))
    try:
        torch.testing.assert_close(have, want, rtol=rtol * times, atol=atol * times, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:300], False
    return "", False


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal element by element, a NaN being equal to a NaN."""
    if a.shape != b.shape:
        return False
    if a.dtype == torch.complex32 and b.dtype == torch.complex32:
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if a.dtype.itemsize == 1 and a.dtype.is_floating_point:
        a, b = a.float(), b.float()
    if torch.equal(a, b):
        return True
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _short(x: Tensor) -> str:
    return str(x.flatten()[:6].tolist())


# --- one call on both sides ----------------------------------------------------------------------


@dataclass
class Outcome:
    arguments: list[Tensor]
    results: Any = None
    error: Exception | None = None
    written: list[int] = field(default_factory=list)  # how often each argument was
    drew: bool = False  # from the host's generator


def _generators() -> tuple[torch.Generator, torch.Generator]:
    from causeway import _C

    return torch.default_generator, _C.default_generator(0)


def _call(place: str, function: Callable[..., Any], given: Any, seed: int = SEED) -> Outcome:
    """`function` on copies of the arguments in this place."""
    copies = Copies(place)
    arguments = copies.of(given)
    host, device = _generators()
    host.manual_seed(seed)
    device.manual_seed(seed)
    before = host.get_state()
    outcome = Outcome([*tensors(arguments)])
    versions = [x._version for x in outcome.arguments]
    # Something made from nothing is made where the others are.
    alone = next(tensors(arguments), None) is None
    try:
        if alone:
            with torch.device(place):
                outcome.results = function(*arguments)
        else:
            outcome.results = function(*arguments)
    except Exception as error:
        outcome.error = error.with_traceback(None)
    outcome.written = [x._version - v for x, v in zip(outcome.arguments, versions, strict=True)]
    outcome.drew = not torch.equal(before, host.get_state())
    return outcome


@dataclass
class Verdict:
    words: str = ""
    exact: bool = True


def compare(
    function: Callable[..., Any], given: Any, *, valueless: bool = False, times: float = 1
) -> Verdict:
    """Call on both sides, and say the first thing that differs. `times` loosens what is close."""
    want = _call("cpu", function, given)
    have = _call(NAME, function, given)
    if want.error is not None:
        return _refusals(want.error, have.error)
    if have.error is not None:
        return Verdict(f"{type(have.error).__name__}: {first_line(have.error)}", False)
    if have.drew:
        return Verdict("drew from the host's generator", False)
    values = not (want.drew or valueless)
    words, exact = differences(want.results, have.results, values=values, times=times)
    if words:
        return Verdict(words, False)
    if want.drew:
        again = _call(NAME, function, given)
        pairs = zip(tensors(have.results), tensors(again.results), strict=True)
        if not all(same_bits(a.detach().cpu(), b.detach().cpu()) for a, b in pairs):
            return Verdict("other numbers for the same seed", False)
    elif not valueless and (any(want.written) or any(have.written)):
        words, equal = differences(want.arguments, have.arguments)
        exact &= equal
        if words:
            return Verdict(f"arguments after the call: {words}", False)
    shared = [sharing([*tensors(x.results)], x.arguments) for x in (want, have)]
    if shared[0] != shared[1]:
        return Verdict(f"shares memory with {shared[1]}, not with {shared[0]}", False)
    return Verdict("", exact)


def _refusals(want: Exception, have: Exception | None) -> Verdict:
    if have is None and "not implemented for 'ComplexHalf'" in str(want):
        return Verdict()  # CUDA takes it: test_cuda_only.py
    if have is None:
        return Verdict(f"the CPU refuses it: {first_line(want)}", False)
    if type(want) is type(have):
        return Verdict()
    return Verdict(
        f"refused with {type(have).__name__} ({first_line(have)}), "
        f"not {type(want).__name__} ({first_line(want)})",
        False,
    )


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:240]
