"""Real calls of an operator: torch's own samples run on the CPU, and what they call is kept.

OpInfo knows how to call each function of torch, forward and backward; a dispatch mode sees the aten
operators below. Samples of functions whose name is near are taken first, which is quick; where they
never reach the operator all samples are run, then modules and optimizers. Calls that no sample
makes are in `recipes`.
"""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from causeway.conformance.families import Family
from causeway.conformance.recipes import of_torch, recipes
from causeway.errors import CausewayError
from causeway.numerics import base_name
from causeway.observe.arguments import overload

SAMPLES = 40  # of one function and dtype, at even distances among those that it has
READ = 8 * SAMPLES  # at most
CALLS = 10  # of one operator and dtype, besides recipes
FUNCTIONS = 8  # whose samples are run for one operator
SEED = 2718
# What OpInfo calls the function of an operator with another name.
OTHER_NAMES = {
    "convolution": "conv",
    "nll_loss2d": "nll_loss",
    "im2col": "unfold",
    "col2im": "fold",
}


@dataclass(frozen=True)
class HarvestedCall:
    """One call of an operator: its inputs in the schema's order, outputs left out."""

    source: str
    inputs: tuple[Any, ...]
    tolerance: tuple[float, float] | None = None  # rtol and atol in place of the operator's rule


def map_tensors(value: Any, function: Any) -> Any:
    """`value` with each tensor, also in a list, replaced by function(tensor)."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, function) for v in value)
    return value


def tensors_in(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the calls of the operators in `wanted`, with copies of their inputs."""

    def __init__(self, wanted: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted = wanted
        self.found: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.name() in self.wanted:
            self.found.append((func.name(), self._inputs(func._schema, args, kwargs)))
        return func(*args, **kwargs)

    def _inputs(self, schema: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
        inputs = []
        for i, argument in enumerate(schema.arguments):
            if argument.is_out:
                continue
            if i < len(args):
                value = args[i]
            else:
                value = kwargs.get(argument.name, argument.default_value)
            inputs.append(map_tensors(value, lambda t: t.detach().clone()))
        return tuple(inputs)


def _testing(module: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return __import__(f"torch.testing._internal.{module}", fromlist=["op_db"])
    except ImportError as error:
        raise CausewayError(
            f"the samples of torch.testing need a package that is not here: {error}; "
            "run `pip install causeway[conformance]`"
        ) from error


@functools.cache
def _functions() -> list[Any]:
    """Every OpInfo but those that are random, or give uninitialised memory."""
    module = _testing("common_methods_invocations")
    lists = [module.op_db]
    lists += [getattr(module, name) for name in dir(module) if re.match(r"foreach_.*op_db$", name)]
    return [info for group in lists for info in group if "empty" not in info.name]


def _spellings(info: Any) -> set[str]:
    names = {info.name.split(".")[-1], info.aten_name, getattr(info, "aten_backward_name", None)}
    names |= {alias.name for alias in getattr(info, "aliases", ())}
    return {name.strip("_") for name in names if name}


def _stem(base: str) -> str:
    stem = re.sub(r"_overrideable$|^native_|^cudnn_|^fused_", "", base.strip("_"))
    stem = re.sub(r"(_dense)?_backward(_data)?$|_forward$|_helper$", "", stem)
    stem = re.sub(r"_with_indices$", "", stem)
    return OTHER_NAMES.get(stem, stem)


def related(operator: str) -> list[Any]:
    """OpInfos that probably call the operator, the likeliest first."""
    base = base_name(operator)
    stem = _stem(base)
    ranked = []
    for info in _functions():
        names = _spellings(info)
        if base in names:
            ranked.append((0, info))
        elif stem in names:
            ranked.append((1, info))
        elif len(stem) > 3 and any(name.startswith(stem) for name in names):
            ranked.append((2, info))
    return [info for _, info in sorted(ranked, key=lambda pair: pair[0])][:FUNCTIONS]


def _run_samples(info: Any, dtype: torch.dtype, recorder: _Recorder) -> None:
    """Run the samples of one function, forward and backward, where the CPU has them."""
    if dtype not in info.dtypes:
        return
    torch.manual_seed(SEED)
    backward = info.supports_autograd and dtype.is_floating_point
    try:
        samples = list(
            itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=backward), READ)
        )
        # Neighbours are alike: the first forty of some functions are all of no elements.
        samples = samples[:: -(-len(samples) // SAMPLES)] if samples else []
    except Exception as error:  # torch's own samples do not all work for all dtypes
        warnings.warn(f"{info.name}: no samples of {dtype}: {error}", stacklevel=1)
        return
    for sample in samples:
        try:
            with recorder:
                result = info.op(sample.input, *sample.args, **sample.kwargs)
                if backward:
                    _differentiate(result)
        except Exception:  # noqa: S112 - a call that the CPU refuses is no case
            continue


def _differentiate(result: Any) -> None:
    outputs = [t for t in tensors_in(result) if t.requires_grad]
    if outputs:
        gradients = [torch.randn_like(t) for t in outputs]
        torch.autograd.backward(outputs, gradients)


def _calls(
    found: Iterable[tuple[str, tuple[Any, ...]]], family: Family, source: str
) -> list[HarvestedCall]:
    n = len([a for a in family.schema.arguments if not a.is_out])
    return [
        HarvestedCall(f"{source} {i}", inputs)
        for i, (name, inputs) in enumerate(found)
        if name in family.harvested and len(inputs) == n
    ]


def harvest(family: Family, dtype: torch.dtype) -> list[HarvestedCall]:
    """Calls of the family with `dtype`, as different as there are."""
    by_hand = [
        HarvestedCall(f"recipe {i}", inputs) for i, inputs in enumerate(recipes(family, dtype))
    ]
    calls: list[HarvestedCall] = []
    for info in related(family.offered) if of_torch(family.offered) else ():
        recorder = _Recorder(set(family.harvested))
        _run_samples(info, dtype, recorder)
        calls += _calls(recorder.found, family, info.name)
    return by_hand + _most_different(_with_dtype(calls, dtype))


def sweep(family: Family) -> list[HarvestedCall]:
    """Calls in float32 that any sample of torch makes: the last resort."""
    if not of_torch(family.offered):
        return []
    return _most_different(_calls(everything().get(family.offered, []), family, "sweep"))


_wanted_everywhere: dict[str, Family] = {}


def want(families: Iterable[Family]) -> None:
    """Say which families the sweep over everything looks for."""
    _wanted_everywhere.update({family.offered: family for family in families})


@functools.cache
def everything() -> dict[str, list[tuple[str, tuple[Any, ...]]]]:
    """Calls in float32 from all functions, modules and optimizers, by offered operator."""
    names: set[str] = set().union(*(family.harvested for family in _wanted_everywhere.values()))
    recorder = _Recorder(names)
    for info in _functions():
        _run_samples(info, torch.float32, recorder)
    for step in (_run_modules, _run_optimizers):
        step(recorder)
    found: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}
    for name, inputs in recorder.found:
        for family in _wanted_everywhere.values():
            if name in family.harvested and len(found.setdefault(family.offered, [])) < 4 * CALLS:
                found[family.offered].append((name, inputs))
    return found


def _run_modules(recorder: _Recorder) -> None:
    for info in _testing("common_modules").module_db:
        torch.manual_seed(SEED)
        try:
            for sample in info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
            )[:4]:
                make, forward = sample.constructor_input, sample.forward_input
                if forward is None:
                    continue
                with recorder:
                    module = info.module_cls(*make.args, **make.kwargs)
                    _differentiate(module(*forward.args, **forward.kwargs))
        except Exception:  # noqa: S112 - torch's own samples do not all work
            continue


def _run_optimizers(recorder: _Recorder) -> None:
    for info in _testing("common_optimizers").optim_db:
        lr = torch.tensor(0.1)  # other overloads, of fused steps
        for how in (
            {"foreach": False},
            {"foreach": True},
            {"fused": True},
            {"fused": True, "lr": lr},
        ):
            parameters = [torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(7))]
            try:
                optimizer = info.optim_cls(parameters, **({"lr": 0.1} | how))
                with recorder:
                    for _ in range(2):
                        optimizer.zero_grad()
                        loss = torch.stack([p.square().sum() for p in parameters]).sum()
                        _differentiate(loss)
                        optimizer.step()
            except (RuntimeError, TypeError, ValueError):  # not every optimizer has every form
                continue


def _with_dtype(calls: list[HarvestedCall], dtype: torch.dtype) -> list[HarvestedCall]:
    """Those that read or make a tensor of `dtype`: a backward may go on in another."""
    kept = []
    for call in calls:
        dtypes = {t.dtype for t in tensors_in(call.inputs)}
        if not dtypes or dtype in dtypes:
            kept.append(call)
    return kept


def _shape_of(call: HarvestedCall) -> tuple[Any, ...]:
    """What makes two calls different in kind: ranks, emptiness, layouts, which options are set."""

    def describe(value: Any) -> Any:
        if isinstance(value, Tensor):
            ones = tuple(n == 1 for n in value.shape)
            return value.ndim, value.numel() == 0, ones, value.dtype, value.is_contiguous()
        if isinstance(value, (list, tuple)):
            return tuple(describe(v) for v in value)
        if isinstance(value, (bool, str)) or value is None:
            return value
        return type(value).__name__, value in (0, 1)

    return tuple(describe(value) for value in call.inputs)


def _most_different(calls: list[HarvestedCall]) -> list[HarvestedCall]:
    """At most CALLS, one of each kind first: those with elements, and of several dimensions, before
    others, which variations make of them.
    """

    def order_of(call: HarvestedCall) -> tuple[bool, int]:
        tensors = list(tensors_in(call.inputs))
        most = max((t.ndim for t in tensors), default=0)
        return any(not t.numel() for t in tensors), -min(most, 3)

    kinds: dict[tuple[str, Any], list[HarvestedCall]] = {}
    for call in sorted(calls, key=order_of):
        if all(t.numel() <= 1 << 18 for t in tensors_in(call.inputs)):
            function = call.source.rsplit(" ", 1)[0]
            kinds.setdefault((function, _shape_of(call)), []).append(call)
    # One call of each kind, the functions alternately; then a second call of each.
    rounds: list[list[list[HarvestedCall]]] = [[], [], []]
    for n in range(len(rounds)):
        by_function: dict[str, list[HarvestedCall]] = {}
        for (function, _), found in kinds.items():
            by_function.setdefault(function, []).extend(found[n : n + 1])
        rounds[n] = list(by_function.values())
    order = [c for lists in rounds for row in itertools.zip_longest(*lists) for c in row if c]
    return order[:CALLS]


def describe(inputs: Iterable[Any]) -> str:
    """float32[3, 4]/(4, 1), 1, ...: a call for people."""

    def word(value: Any) -> str:
        if isinstance(value, Tensor):
            steps = "" if value.is_contiguous() else f"/{tuple(value.stride())}"
            return f"{str(value.dtype)[6:]}{list(value.shape)}{steps}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(word, value))}]"
        return repr(value)

    return ", ".join(map(word, inputs))


def arguments_for(name: str, inputs: Iterable[Any]) -> tuple[list[Any], dict[str, Any]]:
    """`inputs` as positional and keyword-only arguments of operator `name`."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    names = [a for a in overload(name)._schema.arguments if not a.is_out]
    for argument, value in zip(names, inputs, strict=True):
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs
