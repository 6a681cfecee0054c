"""The decomposed rung: an operator that the vendor lacks, computed by operators that it has.

It takes torch's own decomposition of the operator and traces it on meta tensors of the call's
shapes. Only if every operator in the trace is one that the vendor offers, for its dtypes, is there
a plan; else the call goes on down the ladder. The trace becomes straight-line Python, one line an
operator, kept for each set of shapes and numbers: replaying it costs a call of each operator and
nothing else, where torch's decompositions would flatten and promote at each call.

Left out: random operators (a decomposition draws other numbers) and shapes that depend on data.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from causeway import _C
from causeway.ops import facts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

MAX_PROGRAMS = 64  # of one operator; a number that changes at each call must not fill memory
_PROMOTION = 4  # CW_NEEDS_PROMOTION of abi.h

_thread = threading.local()


class NotServed(Exception):
    """An operator in the trace is not one that the vendor offers."""


def plan(
    name: str, args: Args, kwargs: Kwargs, in_capture: bool = False
) -> Callable[..., Any] | None:
    """What the core asks, once for each signature: a `decomposition`, or None for the next rung.

    None where the host can address device memory and the policy allows the host rung, outside of
    the capture of a graph: there torch's fused CPU kernel is 5 to 10 times as fast as the operators
    of a decomposition (measured on the simulated chip, 8x8).
    """
    from causeway import config
    from causeway.device.properties import get_device_properties

    for tensor in _tensors([*args, *kwargs.values()]):
        if tensor.device.type != "cpu":
            free = get_device_properties(tensor.device).host_addressable
            if free and config.get("policy") == "allow" and not in_capture:
                return None
            return decomposition(name, args, kwargs)
    return None


def decomposition(name: str, args: Args, kwargs: Kwargs) -> Callable[..., Any] | None:
    """A function that computes operator `name` from operators that the vendor offers, or None.

    It takes any arguments of the operator, of other shapes too.
    """
    if getattr(_thread, "planning", False) or not _offered():
        return None
    decomposed = _decomposed(name)
    if decomposed is None or decomposed.running():
        return None
    return decomposed if decomposed.program(args, kwargs) is not None else None


@cache
def _offered() -> dict[str, dict[str, Any]]:
    # A portable kernel is one kernel on the device, as good as the vendor's for a plan.
    return {**_C.offered_portable(), **_C.offered()}


@cache
def _decomposed(name: str) -> Decomposed | None:
    op = _overload(name)
    if op is None or torch.Tag.nondeterministic_seeded in op.tags or _is_free(op):
        return None
    if facts.of(name).costly:
        return None
    function = _function(op)
    return None if function is None else Decomposed(op, function)


# --- what an operator is ------------------------------------------------------------------------


def _overload(name: str) -> OpOverload | None:
    """The overload called "aten::add.out"."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return getattr(packet, overload or "default", None)


def _qualified(op: OpOverload) -> str:
    """ "aten::add.Tensor"; "aten::relu" where the overload has no name."""
    return op._schema.name + ("." + op._schema.overload_name if op._schema.overload_name else "")


def _is_out(op: OpOverload) -> bool:
    return any(a.is_out for a in op._schema.arguments)


def _is_inplace(op: OpOverload) -> bool:
    first = op._schema.arguments[:1]
    return bool(first) and not _is_out(op) and _writes(first[0])


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


@cache
def _functional(op: OpOverload) -> OpOverload | None:
    """The overload that returns new tensors and takes what `op` takes, less out=."""
    if not _is_out(op) and not _is_inplace(op):
        return op
    name = _C.functional_form(_qualified(op))
    return _overload(name) if name else None


@cache
def _decomposition(op: OpOverload) -> Callable[..., Any] | None:
    """torch's own decomposition of a functional operator, or one of ours where it has none."""
    from torch._decomp import decomposition_table

    name = _qualified(op)
    function = _OURS.get(name) or decomposition_table.get(op)
    if function is not None:
        return _inside(function) if name in _NEAREST else function
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        return op.decompose
    return None


def _function(op: OpOverload) -> Callable[..., Any] | None:
    """The decomposition of `op` in the form of `op`: in place, or into out=."""
    functional = _functional(op)
    if functional is None:
        return None
    compute = _decomposition(functional)
    if compute is None or functional is op:
        return compute
    written = [a.name for a in op._schema.arguments if _writes(a)]
    names = [a.name for a in op._schema.arguments]
    front = [a.name for a in functional._schema.arguments if not a.kwarg_only]

    def positional(given: Kwargs) -> list[Any]:
        return [given[name] for name in front if name in given]

    def named(given: Kwargs) -> Kwargs:
        return {name: value for name, value in given.items() if name not in front}

    def into(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        places = [given[name] for name in written]
        if _is_out(op):
            for name in written:
                del given[name]
        results = compute(*positional(given), **named(given))
        if results is NotImplemented:
            return results
        results = results if isinstance(results, tuple | list) else (results,)
        for place, result in zip(places, results, strict=True):
            if place.shape != result.shape:
                place.resize_(result.shape)
            place.copy_(result)
        return places[0] if len(places) == 1 else tuple(places)

    return into


def _var(
    self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    dims = list(range(self.dim())) if not dim else [d % self.dim() for d in dim]
    count = math.prod(self.shape[d] for d in dims)
    mean = torch.ops.aten.mean.dim(self, dims, True)
    square = (self - mean) * (self - mean)
    # As torch.var: not a number where nothing is left to divide by.
    total = torch.ops.aten.sum.dim_IntList(square, dims, keepdim)
    variance: torch.Tensor = total / max(count - (1 if correction is None else correction), 0)
    return variance


def _var_mean(
    self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    dims = list(range(self.dim())) if not dim else list(dim)
    variance = _var(self, dims, correction=correction, keepdim=keepdim)
    return variance, torch.ops.aten.mean.dim(self, dims, keepdim)


def _std(
    self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    return torch.sqrt(_var(self, dim, correction=correction, keepdim=keepdim))


def _where(condition: torch.Tensor, self: Any, other: Any) -> torch.Tensor:
    dtype = torch.result_type(self, other)
    values = [
        v if isinstance(v, torch.Tensor) else torch.full((), v, dtype=dtype, device="meta")
        for v in (self, other)
    ]
    result: torch.Tensor = torch.ops.aten.where.self(condition, *values)
    return result


def _weight_norm_backward(
    grad_w: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of w = v g / |v|, s = sum(dw v): dv = g / |v| (dw - v s / |v|**2) and dg = s / |v|."""
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    wide = [t.to(norms.dtype) for t in (grad_w, v, g)]
    sums = torch.ops.aten.sum.dim_IntList(wide[0] * wide[1], others, True)
    grad_v = wide[2] / norms * (wide[0] - wide[1] * (sums / (norms * norms)))
    return grad_v.to(v.dtype), (sums / norms).to(g.dtype)


def _equal(self: torch.Tensor, other: torch.Tensor) -> Any:
    if self.shape != other.shape:
        return False
    return torch.ops.aten.all.default(torch.ops.aten.eq.Tensor(self, other))


def encoder_layer(
    src: torch.Tensor, embed_dim: int, num_heads: int, *rest: Any, **named: Any
) -> torch.Tensor:
    """nn.TransformerEncoderLayer in inference, which torch's CPU has as one operator
    (aten/src/ATen/native/transformers/transformer.cpp).
    """
    names = (
        *("qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "use_gelu", "norm_first", "eps"),
        *("norm_weight_1", "norm_bias_1", "norm_weight_2", "norm_bias_2"),
        *("ffn_weight_1", "ffn_bias_1", "ffn_weight_2", "ffn_bias_2", "mask", "mask_type"),
    )
    w = {"mask": None, "mask_type": None, **dict(zip(names, rest, strict=False)), **named}
    F = torch.nn.functional

    def norm(x: torch.Tensor, which: str) -> torch.Tensor:
        weight, bias = w[f"norm_weight_{which}"], w[f"norm_bias_{which}"]
        return F.layer_norm(x, (embed_dim,), weight, bias, w["eps"])

    def attended(x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        width = embed_dim // num_heads
        qkv = F.linear(x, w["qkv_weight"], w["qkv_bias"]).view(batch, length, 3, num_heads, width)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (1 / math.sqrt(width))) @ k.transpose(2, 3)
        mask = w["mask"]
        if mask is not None:
            mask = mask if mask.dtype == torch.bool else mask != 0
            # 0: of positions, 1: of what is padded in each sequence, 2: of both
            mask = mask.view(batch, 1, 1, length) if w["mask_type"] == 1 else mask
            scores = scores.masked_fill(mask, -math.inf)
        seen = (scores.softmax(3) @ v).transpose(1, 2).reshape(batch, length, embed_dim)
        return F.linear(seen, w["proj_weight"], w["proj_bias"])

    def fed(x: torch.Tensor) -> torch.Tensor:
        wide = F.linear(x, w["ffn_weight_1"], w["ffn_bias_1"])
        wide = F.gelu(wide) if w["use_gelu"] else F.relu(wide)
        return F.linear(wide, w["ffn_weight_2"], w["ffn_bias_2"])

    if w["norm_first"]:
        x = src + attended(norm(src, "1"))
        return x + fed(norm(x, "2"))
    x = norm(src + attended(src), "1")
    return norm(x + fed(x), "2")


def _inside(nearest: Callable[..., Any]) -> Callable[..., Any]:
    """torch's decomposition where its places are in the input. It goes by a given scale alone, and
    the CPU's kernel stops at the end of the input (torch 2.13).
    """

    def decomposed(
        self: torch.Tensor, output_size: Sequence[int], *scales: float | None, **named: float | None
    ) -> Any:
        sizes = self.shape[-len(output_size) :]
        for n, size, scale in zip(sizes, output_size, (*scales, *named.values()), strict=False):
            if scale and (size - 0.5) / scale >= n:
                return NotImplemented
        return nearest(self, output_size, *scales, **named)

    return decomposed


_NEAREST = {
    f"aten::{name}{dims}d"
    for name in ("upsample_nearest", "_upsample_nearest_exact")
    for dims in (1, 2, 3)
}

# torch computes these in C++, with no operator in between, or by prims that are these again.
_OURS: dict[str, Callable[..., Any]] = {
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
    "aten::_weight_norm_interface_backward": _weight_norm_backward,
    "aten::equal": _equal,
    "aten::std.correction": _std,
    "aten::var.correction": _var,
    "aten::var_mean.correction": _var_mean,
    "aten::where.Scalar": _where,
    "aten::where.ScalarOther": _where,
    "aten::where.ScalarSelf": _where,
}


# --- whether an operator is served --------------------------------------------------------------


@cache
def _is_view(op: OpOverload) -> bool:
    returns = op._schema.returns
    return bool(returns) and all(r.alias_info and not r.alias_info.is_write for r in returns)


def _is_free(op: OpOverload) -> bool:
    known = facts.of(_qualified(op))
    return known.plumbing or known.copies or _is_view(op)


def _offers(name: str, dtypes: Sequence[torch.dtype]) -> bool:
    offer = _offered().get(name)
    if offer is None:
        return False
    if not offer["dtypes"]:
        return True
    if offer["needs"] & _PROMOTION and dtypes:
        common = dtypes[0]
        for dtype in dtypes[1:]:
            common = torch.promote_types(common, dtype)
        dtypes = [common]
    return all(dtype in offer["dtypes"] for dtype in dtypes)


def _served(op: OpOverload, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    """Whether the vendor offers `op`, in this or its out= form, for these dtypes."""
    name = _qualified(op)
    known = facts.of(name)
    if known.copies:
        source, target = inputs[-1], outputs[0]
        same = source.dtype == target.dtype and source.stride() == target.stride()
        return same or _offers("aten::copy_", [source.dtype, target.dtype])
    if _is_free(op):
        return True
    if known.computed_by:
        return _offers(known.computed_by, [t.dtype for t in outputs])
    dtypes = [t.dtype for t in inputs] or [t.dtype for t in outputs]
    out = _C.out_form(name)
    if _offers(name, dtypes) or (out and _offers(out, dtypes)):
        return True
    # add.Scalar and its like become add.Tensor within torch.
    if name.endswith(".Scalar") and not _is_out(op):
        tensor = _overload(name.removesuffix("Scalar") + "Tensor")
        return tensor is not None and _served(tensor, inputs, outputs)
    return False


# --- the trace ----------------------------------------------------------------------------------


class _Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down each operator that is served, and takes apart each that is not."""

    def __init__(self, dtypes: frozenset[torch.dtype]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtypes = dtypes  # of the chip
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.alive: list[torch.Tensor] = []  # so that no two tensors of a trace share an id
        self.constants: dict[str, Any] = {}
        self.inside: list[OpOverload] = []

    def add_input(self, tensor: torch.Tensor) -> str:
        name = f"a{len(self.alive)}"
        self._name(tensor, name)
        return name

    def _name(self, tensor: torch.Tensor, name: str) -> None:
        if tensor.dtype not in self.dtypes:
            raise NotServed(f"the chip has no {tensor.dtype}")
        self.names[id(tensor)] = name
        self.alive.append(tensor)

    def expression(self, value: Any) -> str:
        """`value` as Python source."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.names:
                raise NotServed("a tensor that is no input")
            return self.names[id(value)]
        if isinstance(value, list):
            return "[" + ", ".join(map(self.expression, value)) + "]"
        if isinstance(value, tuple):
            return "(" + "".join(self.expression(v) + ", " for v in value) + ")"
        if isinstance(value, torch.device) and value.type == "meta":
            return "device"
        if value is None or type(value) in (bool, int):
            return repr(value)
        if type(value) is float and math.isfinite(value):
            return repr(value)
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        inputs = list(_tensors([*args, *kwargs.values()]))
        apart = self._taken_apart(func, args, kwargs)
        if apart is None:
            result = func(*args, **kwargs)
            outputs = list(_tensors([result]))
            if outputs and _served(func, inputs, outputs):
                self._record(func, args, kwargs, result)
                return result
            apart = _decomposition(func)
        if apart is None or func in self.inside or len(self.inside) > 20:
            raise NotServed(_qualified(func))
        self.inside.append(func)
        try:
            with self:
                result = apart(*args, **kwargs)
        finally:
            self.inside.pop()
        if result is NotImplemented:
            raise NotServed(_qualified(func))
        return result

    def _taken_apart(self, func: Any, args: Args, kwargs: Kwargs) -> Callable[..., Any] | None:
        """What stands for an operator that is never served itself: one of prims, or a change of
        an input that the meta kernel would make before we know whether it is served."""
        if func.namespace == "prims":
            return getattr(func, "impl_aten", None) or _refuse
        return None

    def _record(self, func: Any, args: Args, kwargs: Kwargs, result: Any) -> None:
        call = ", ".join(
            [*map(self.expression, args), *(f"{k}={self.expression(v)}" for k, v in kwargs.items())]
        )
        op = f"f{len(self.lines)}"
        self.constants[op] = func
        target = f"v{len(self.lines)}"
        self.lines.append(f"{target} = {op}({call})")
        if isinstance(result, torch.Tensor):
            if id(result) not in self.names:
                self._name(result, target)
            return
        for index, tensor in enumerate(result):
            if isinstance(tensor, torch.Tensor) and id(tensor) not in self.names:
                self._name(tensor, f"{target}[{index}]")

    def compile(self, inputs: Sequence[str], result: Any, read: bool) -> Callable[..., Any]:
        """The function `(device, *inputs)` that does what was written down. `read`: its result is
        the number in the tensor.
        """
        body = "".join(f"    {line}\n" for line in self.lines)
        head = f"def program(device{''.join(', ' + name for name in inputs)}):\n"
        item = ".item()" if read else ""
        source = f"{head}{body}    return {self.expression(result)}{item}\n"
        exec(compile(source, "<decomposition>", "exec"), self.constants)
        program: Callable[..., Any] = self.constants["program"]
        return program


def _refuse(*args: Any, **kwargs: Any) -> Any:
    return NotImplemented


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _on_meta(value: Any, made: list[torch.Tensor]) -> Any:
    """`value` with each tensor replaced by a meta tensor, which is put into `made`."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu":
            raise NotServed("a CPU tensor")
        meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        made.append(meta)
        return meta
    if isinstance(value, list):
        return [_on_meta(v, made) for v in value]
    if isinstance(value, tuple):
        return tuple(_on_meta(v, made) for v in value)
    return value


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.shape, value.stride(), value.device)
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    # 1, 1.0 and True are equal, and mean different programs.
    return (type(value), value)


# --- a plan -------------------------------------------------------------------------------------


class Decomposed:
    """An operator computed by others: a program for each set of shapes and numbers."""

    def __init__(self, op: OpOverload, function: Callable[..., Any]) -> None:
        self.op = op
        self.function = function
        self.programs: dict[Any, Callable[..., Any] | None] = {}
        # The core hands on int where torch's Python has dtype, layout and memory_format.
        self.enums = {
            a.name: (i, _ENUMS[kind])
            for i, a in enumerate(op._schema.arguments)
            if (kind := str(a.real_type).removeprefix("Optional[").removesuffix("]")) in _ENUMS
        }

    def running(self) -> bool:
        return self.op in getattr(_thread, "running", ())

    def program(self, args: Args, kwargs: Kwargs) -> Callable[..., Any] | None:
        """The program for these arguments, traced if it is new; None where it is not served."""
        key = (_key(args), _key(tuple(kwargs.items())))
        if key not in self.programs and len(self.programs) < MAX_PROGRAMS:
            self.programs[key] = self._trace(args, kwargs)
        return self.programs.get(key)

    def _trace(self, args: Args, kwargs: Kwargs) -> Callable[..., Any] | None:
        from causeway.device.properties import get_device_properties

        made: list[torch.Tensor] = []
        tensors = _tensors([*args, *kwargs.values()])
        device = next((t.device for t in tensors if t.device.type != "cpu"), None)
        if device is None:
            return None
        trace = _Trace(get_device_properties(device).dtypes)
        with _planning():
            try:
                args, kwargs = self._with_enums(*_on_meta((args, _items(kwargs)), made))
                inputs = [trace.add_input(tensor) for tensor in made]
                with torch._C._AutoDispatchBelowAutograd(), trace:
                    result = self.function(*args, **kwargs)
                if result is NotImplemented:
                    return None
                return trace.compile(inputs, result, self._is_number_of(result))
            except Exception:
                # A trace fails in as many ways as decompositions have opinions; all of them mean
                # that this rung does not serve the call, and the next one does.
                return None

    def _is_number_of(self, result: Any) -> bool:
        """Whether the operator returns the number in this tensor: a bool of `equal`."""
        (returns,) = self.op._schema.returns[:1] or (None,)
        kind = returns is not None and str(returns.real_type)
        return isinstance(result, torch.Tensor) and kind in ("bool", "int", "float", "number")

    def _with_enums(self, args: Args, items: tuple[tuple[str, Any], ...]) -> tuple[Args, Kwargs]:
        positional, named = list(args), dict(items)
        for name, (index, enum) in self.enums.items():
            if index < len(positional):
                positional[index] = enum(positional[index])
            elif name in named:
                named[name] = enum(named[name])
        return tuple(positional), named

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program = self.program(args, kwargs)
        running = _thread.__dict__.setdefault("running", [])
        if self.op in running:
            return self._on_host(args, kwargs)
        running.append(self.op)
        try:
            with torch._C._AutoDispatchBelowAutograd():
                if program is None:  # served for other shapes: right, if slower
                    positional, named = self._with_enums(args, _items(kwargs))
                    result = self.function(*positional, **named)
                    if result is NotImplemented:
                        return self._on_host(args, kwargs)
                    return result.item() if self._is_number_of(result) else result
                tensors = list(_tensors([*args, *kwargs.values()]))
                return program(tensors[0].device, *tensors)
        finally:
            running.pop()

    def _on_host(self, args: Args, kwargs: Kwargs) -> Any:
        """For an operator of a program that in turn asks for this one."""
        functional = _functional(self.op)
        assert functional is not None
        device = next(_tensors([*args, *kwargs.values()])).device
        writes = [a.name for a in self.op._schema.arguments if _writes(a)]
        names = [a.name for a in self.op._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        wanted = {a.name for a in functional._schema.arguments}
        result = functional(**{k: _to(v, "cpu") for k, v in given.items() if k in wanted})
        if not writes:
            return _to(result, device)
        results = result if isinstance(result, tuple | list) else (result,)
        for name, value in zip(writes, results, strict=True):
            given[name].resize_(value.shape).copy_(value)
        places = tuple(given[name] for name in writes)
        return places[0] if len(places) == 1 else places


def _items(kwargs: Kwargs) -> tuple[tuple[str, Any], ...]:
    return tuple(kwargs.items())


def _to(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(_to(v, device) for v in value)
    return value


@contextmanager
def _planning() -> Iterator[None]:
    _thread.planning = True
    try:
        yield
    finally:
        _thread.planning = False


# --- numbers that stand for enums ---------------------------------------------------------------


@cache
def _dtype(value: Any) -> Any:
    if type(value) is not int:
        return value
    return torch.ops.aten.empty.memory_format([0], dtype=value, device="meta").dtype


def _memory_format(value: Any) -> Any:
    formats = (
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
    )
    return formats[value] if type(value) is int else value


def _layout(value: Any) -> Any:
    return torch.strided if value == 0 and type(value) is int else value


_ENUMS: dict[str, Callable[[Any], Any]] = {
    "ScalarType": _dtype,
    "MemoryFormat": _memory_format,
    "Layout": _layout,
}
