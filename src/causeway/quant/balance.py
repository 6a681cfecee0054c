"""Scales moved between layers before they become integers: SmoothQuant and cross-layer
equalization. The model computes the same in floating point.
"""

from __future__ import annotations

import collections
import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from causeway.errors import CausewayError
from causeway.quant.correct import arguments_of
from causeway.quant.fold import traced
from causeway.quant.select import CONVOLUTIONS, Kinds, kind_of
from causeway.quant.settings import nearest

_LAYERS: Kinds = (nn.Linear, *CONVOLUTIONS)
_NORMS: Kinds = (nn.LayerNorm, nn.RMSNorm)
_BATCH_NORMS: Kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# f(s * x) = s * f(x) for s > 0, in each channel alone.
_KEEP_SCALES: Kinds = (nn.ReLU, nn.LeakyReLU, nn.Identity, nn.Dropout)
_POOLS: dict[int, Kinds] = {
    1: (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveMaxPool1d, nn.AdaptiveAvgPool1d),
    2: (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d),
    3: (nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveMaxPool3d, nn.AdaptiveAvgPool3d),
}
_RELUS: tuple[Any, ...] = (torch.relu, nn.functional.relu, "relu")
_ROUNDS = 50
_SETTLED = 1e-3  # how much a scale may still change in the last round

Pair = tuple[str, tuple[str, ...]]
New = dict[nn.Parameter, torch.Tensor]


def smooth_quant(
    model: nn.Module,
    batches: Iterable[Any],
    alpha: float = 0.5,
    pairs: Sequence[tuple[str, str | Sequence[str]]] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """`model`, in eval mode and floating point, with outlier channels of layers' inputs made
    smaller and their weights larger, for `quantize_dynamic` to follow.

    Channel j of the input of one or more Linear or convolutions is divided by
    `s_j = max|X_j|^alpha / max|W_j|^(1 - alpha)`, with X all inputs in `batches` and W the weights
    of all of them together that channel j is multiplied by; those are multiplied by it. The
    division becomes part of the weight and bias [channels] of the LayerNorm or RMSNorm before, or
    of the rows of the Linear or the convolution before. `s` is [channels], and 1 where X_j or W_j
    is all zero. "SmoothQuant", arXiv 2211.10438, equation 4.

    Layers are two of a kind, Linear or convolutions of as many dimensions, transposed ones too; or
    a convolution whose batches are flattened for a Linear, where channel j is all columns of it.

    Args:
        model: Any module.
        batches: Inputs, or tuples of them; those of calibration will do.
        alpha: From 0 to 1: how much of the range goes from inputs to weights.
        pairs: Names: `("norm1", ("q", "k", "v"))`, with all that read what the first gives. Without
            it they are found by torch.fx, and ReLU, dropout or pools may lie after the first.
        inplace: Change `model` itself.

    Raises:
        CausewayError: there are no batches, no pairs, a pair does not exist or cannot take a scale,
            or the model would compute something else with it: then nothing was changed.
    """
    if not 0 <= alpha <= 1:
        raise CausewayError(f"alpha={alpha}: it is to be from 0 to 1")
    given = arguments_of(batches, "smooth_quant")
    model = _own(model, inplace, "smooth_quant")
    befores: Kinds = (*_NORMS, *_LAYERS)
    if pairs is None:
        found = _found(model, befores, many=True, name="smooth_quant")
    else:
        found = [(a, (b,) if isinstance(b, str) else tuple(b)) for a, b in pairs]
        _check_named(model, found, befores)
    with torch.no_grad(), _all_or_nothing() as old:
        found = _in_batches(model, found, given, named=pairs is not None)
        expected, ranges = _watched(model, [n for _, afters in found for n in afters], given)
        for before, afters in found:
            first = model.get_submodule(before)
            layers = [model.get_submodule(n) for n in afters]
            channels = _outputs(first)
            inputs = torch.stack([ranges[n].view(channels, -1).amax(1) for n in afters]).amax(0)
            weights = torch.stack([_by_input(m, channels) for m in layers]).amax(0)
            scale = inputs.pow(alpha) / weights.pow(1 - alpha)
            scale = torch.where((inputs > 0) & (weights > 0), scale, 1.0)
            _move(first, layers, scale, (before, afters), old)
        _check_same(expected, model(*given[0]), found)
    return model


def equalize(
    model: nn.Module,
    pairs: Sequence[tuple[str, str]] | None = None,
    inplace: bool = False,
    batches: Iterable[Any] | None = None,
) -> nn.Module:
    """`model`, in eval mode and floating point, with the weights of layers that follow each other
    scaled until their channels are of one size, for `quantize_dynamic` to follow.

    Layers are two Linear, or two convolutions of as many dimensions, transposed ones too, with
    nothing, ReLU, LeakyReLU, dropout or a pool of the same dimensions between. With `batches`, also
    a convolution and a Linear with a flatten between: what it flattens is known only then.

    Channel i has `s_i = sqrt(r1_i * r2_i) / r2_i`, with r1_i the largest weight that gives output i
    of the first and r2_i the largest that input i of the second is multiplied by; after a flatten
    that is all columns of the channel. Weights of output i and bias i are divided by it, those of
    input i are multiplied. `s` is [out] of the first, and 1 where r1_i or r2_i is zero. Chains
    repeat until scales settle. Fold batch norms first. "Data-Free Quantization through Weight
    Equalization and Bias Correction", arXiv 1906.04721, equation 11.

    Args:
        model: A module whose forward torch.fx can follow.
        pairs: Names, `("conv1", "conv2")`; without it, all that there are.
        inplace: Change `model` itself.
        batches: Inputs, or tuples of them. Where they are given, the outputs are compared too.

    Raises:
        CausewayError: torch.fx cannot follow the model, there are no pairs, one does not exist or
            cannot take a scale, or the model would compute something else: then nothing was
            changed.
    """
    given = None if batches is None else arguments_of(batches, "equalize")
    model = _own(model, inplace, "equalize")
    found = _found(model, _LAYERS, many=False, name="equalize", flat=given is not None)
    if pairs is not None:
        named: list[Pair] = [(a, (b,)) for a, b in pairs]
        _check_named(model, named, _LAYERS)
        for before, after in pairs:
            if (before, (after,)) not in found:
                flat = _flat(model.get_submodule(before), model.get_submodule(after))
                raise CausewayError(
                    f"{before!r} and {after!r} cannot be equalized: {after!r} is to be all that "
                    f"reads {before!r}, with nothing but ReLU, dropout or pools between, and each "
                    "runs once"
                    + (". Across a flatten, batches are needed" if flat and given is None else "")
                )
        found = [p for p in found if p in named]
    with torch.no_grad(), _all_or_nothing() as old:
        if given is not None:
            found = _in_batches(model, found, given, named=pairs is not None)
            expected = model(*given[0])
        for _ in range(_ROUNDS):
            change = 0.0
            for before, afters in found:
                first, second = model.get_submodule(before), model.get_submodule(afters[0])
                r1, r2 = _by_output(first), _by_input(second, _outputs(first))
                scale = torch.where((r1 > 0) & (r2 > 0), (r1 * r2).sqrt() / r2, 1.0)
                _move(first, [second], scale, (before, afters), old)
                change = max(change, float((scale - 1).abs().max()))
            if change < _SETTLED:
                break
        if given is not None:
            _check_same(expected, model(*given[0]), found)
    return model


@contextlib.contextmanager
def _all_or_nothing() -> Iterator[New]:
    """What parameters were before `_move` changed them, which they are again after an error."""
    old: New = {}
    try:
        yield old
    except BaseException:
        for parameter, was in old.items():
            parameter.copy_(was)
        raise


def _own(model: nn.Module, inplace: bool, name: str) -> nn.Module:
    if model.training:
        raise CausewayError(f"{name} is for inference: model.eval() first")
    return model if inplace else copy.deepcopy(model)


def _found(
    model: nn.Module, befores: Kinds, many: bool, name: str, flat: bool = True
) -> list[Pair]:
    """The pairs that the model's graph shows to be safe, in the order in which they run; a flatten
    between is safe for batches alone, and taken if `flat`.
    """
    graph = traced(model, "smooth_quant takes pairs by name, equalize needs the graph")
    calls = collections.Counter(n.target for n in graph.nodes if n.op == "call_module")
    read = {str(n.target).rpartition(".")[0] for n in graph.nodes if n.op == "get_attr"}
    problem = _problems(model)

    def usable(node: Any, kinds: Kinds) -> bool:
        if node.op != "call_module" or calls[node.target] != 1 or node.target in read:
            return False
        module = model.get_submodule(str(node.target))
        return kind_of(module, kinds) is not None and problem(module) is None

    found = []
    for node in graph.nodes:
        if not usable(node, befores):
            continue
        before = model.get_submodule(str(node.target))
        end, flattened = node, False
        while len(readers := _readers(end)) == 1:
            (user,) = readers
            if _dims(before) and not flattened and _flattens(model, user, end):
                flattened = True
            elif not _keeps_scales(model, 0 if flattened else _dims(before), user, end):
                break
            end = user
        users = readers
        if not users or (len(users) > 1 and not many) or (flattened and not flat):
            continue
        if not all(usable(u, _LAYERS) and u.args[:1] == (end,) for u in users):
            continue
        layers = [model.get_submodule(str(u.target)) for u in users]
        if all(_fit(before, m) and _flat(before, m) == flattened for m in layers):
            found.append((str(node.target), tuple(str(u.target) for u in users)))
    if not found:
        more = "" if flat else "; across a flatten it looks where batches are given"
        if any(isinstance(m, _BATCH_NORMS) for m in model.modules()):
            more += "; fold batch norms first (fold_norms, --fold-norms)"
        raise CausewayError(
            f"{name} found no pair of layers in this model between which scales move{more}"
        )
    return found


def _readers(node: Any) -> list[Any]:
    """What uses the numbers of `node`, and not its size alone."""
    return [
        user
        for user in node.users
        if not (user.op == "call_method" and user.target == "size")
        and not (user.op == "call_function" and user.target is getattr and user.args[1] == "shape")
    ]


def _flattens(model: nn.Module, node: Any, of: Any) -> bool:
    """It is flatten(1) of `of`, or a view of two dimensions, which _in_batches looks at."""
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        whole = type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
        return whole and not _hooked(module) and node.args == (of,)
    if node.args[:1] != (of,):
        return False
    if node.target in (torch.reshape, "reshape", "view"):
        sizes = node.args[1:]
        if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
            (sizes,) = sizes
        return len(sizes) == 2 and not node.kwargs
    if node.target not in (torch.flatten, "flatten"):
        return False
    named = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | node.kwargs
    return (named.get("start_dim", 0), named.get("end_dim", -1)) == (1, -1)


def _keeps_scales(model: nn.Module, dims: int, node: Any, of: Any) -> bool:
    """It computes on each channel of `of` alone, and a scale of it passes; `dims` are pooled."""
    if node.args[:1] != (of,):
        return False
    if node.op != "call_module":
        return node.op in ("call_function", "call_method") and node.target in _RELUS
    module = model.get_submodule(str(node.target))
    pools = _POOLS.get(dims, ())
    return type(module) in (*_KEEP_SCALES, *pools) and not module.training and not _hooked(module)


def _check_named(model: nn.Module, pairs: list[Pair], befores: Kinds) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    problem = _problems(model)
    if not pairs or not all(after for _, after in pairs):
        raise CausewayError("pairs is empty, or one of them names no layer that follows")
    for names in ([b for b, _ in pairs], [n for _, after in pairs for n in after]):
        missing = [n for n in names if n not in modules]
        if missing:
            raise CausewayError(
                f"the model has no layer called {missing[0]!r}."
                + nearest(missing[0], list(modules))
            )
        twice = [n for n, c in collections.Counter(id(modules[n]) for n in names).items() if c > 1]
        if twice:
            name = next(n for n in names if id(modules[n]) == twice[0])
            raise CausewayError(f"{name!r} is in several pairs on the same side: name it in one")
    for before, after in pairs:
        for name, kinds in ((before, befores), *((n, _LAYERS) for n in after)):
            module = modules[name]
            if kind_of(module, kinds) is None:
                wanted = ", ".join(k.__name__ for k in kinds)
                raise CausewayError(
                    f"{name!r} is a {type(module).__name__}, and is to be one of: {wanted}"
                )
            reason = problem(module)
            if reason:
                raise CausewayError(f"{name!r} cannot take a scale: {reason}")
        for name in after:
            if not _fit(modules[before], modules[name]):
                raise CausewayError(
                    f"{before!r} gives {_outputs(modules[before])} channels as "
                    f"{type(modules[before]).__name__}, which are not the "
                    f"{_inputs(modules[name])} that {name!r}, {type(modules[name]).__name__}, takes"
                )


def _problems(model: nn.Module) -> Callable[[nn.Module], str | None]:
    """Says why a module's weights cannot be scaled, or None."""
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(parameter.data_ptr(), set()).add(id(module))

    def problem(module: nn.Module) -> str | None:
        weight = module._parameters.get("weight")
        if weight is None:
            return "it has no weight of its own"
        if not weight.is_floating_point():
            return f"its weight is in {weight.dtype}"
        if isinstance(module, nn.LayerNorm | nn.RMSNorm) and weight.dim() != 1:
            return "it normalizes more than one dimension"
        own = [p for p in module._parameters.values() if p is not None]
        if any(len(owners[p.data_ptr()]) > 1 for p in own):
            return "it shares its weights with another layer"
        return "there are hooks on it" if _hooked(module) else None

    return problem


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _fit(before: nn.Module, after: nn.Module) -> bool:
    """Each channel that `before` gives is one that `after` takes, or so many columns of it."""
    if before is after:
        return False
    if _flat(before, after):
        return _inputs(after) % _outputs(before) == 0
    return _dims(before) == _dims(after) and _outputs(before) == _inputs(after)


def _flat(before: nn.Module, after: nn.Module) -> bool:
    return _dims(before) > 0 and _dims(after) == 0


def _dims(module: Any) -> int:
    """How many dimensions a convolution goes over; 0 of what has its channels last."""
    return len(module.kernel_size) if kind_of(module, CONVOLUTIONS) else 0


def _transposed(module: Any) -> bool:
    return bool(getattr(module, "transposed", False))


def _groups(module: Any) -> int:
    return int(getattr(module, "groups", 1))


def _outputs(module: Any) -> int:
    shape = module.weight.shape
    return int(shape[1] * module.groups if _transposed(module) else shape[0])


def _inputs(module: Any) -> int:
    shape = module.weight.shape
    return int(shape[0] if _transposed(module) else shape[1] * _groups(module))


def _double(x: torch.Tensor) -> torch.Tensor:
    return x.detach().cpu().double()  # a chip may have no float64


def _by_output(module: Any) -> torch.Tensor:
    """The largest weight that gives each output channel."""
    return _in_groups(module, _inputs(module)).abs().flatten(2).amax(2).flatten()


def _by_input(module: Any, channels: int) -> torch.Tensor:
    """The largest weight that each input channel is multiplied by."""
    weight = _in_groups(module, channels).abs()
    return weight.amax((1, *range(3, weight.dim()))).flatten()


def _in_groups(module: Any, channels: int) -> torch.Tensor:
    """Weights as [groups, out, in, ...], the inputs being `channels` in all."""
    weight, groups = _double(module.weight).contiguous(), _groups(module)
    if _transposed(module):
        return weight.view(groups, -1, *weight.shape[1:]).transpose(1, 2)
    if weight.dim() == 2:  # after a flatten each channel has several columns
        return weight.view(1, weight.shape[0], channels, -1)
    return weight.view(groups, -1, *weight.shape[1:])


def _from_groups(weight: torch.Tensor, module: Any) -> torch.Tensor:
    """The inverse of `_in_groups`."""
    turned = weight.transpose(1, 2) if _transposed(module) else weight
    return turned.reshape(module.weight.shape)


def _move(before: Any, afters: list[Any], scale: torch.Tensor, pair: Pair, old: New) -> None:
    """Divide what `before` gives by `scale`, and multiply what `afters` multiply it by."""
    new: New = {}
    if before.weight.dim() == 1:
        new[before.weight] = _double(before.weight) / scale
    else:
        weight = _in_groups(before, _inputs(before))
        rows = scale.view(weight.shape[0], -1, 1, *[1] * (weight.dim() - 3))
        new[before.weight] = _from_groups(weight / rows, before)
    bias = getattr(before, "bias", None)
    if bias is not None:
        new[bias] = _double(bias) / scale
    for layer in afters:
        weight = _in_groups(layer, len(scale))
        columns = scale.view(weight.shape[0], 1, -1, *[1] * (weight.dim() - 3))
        new[layer.weight] = _from_groups(weight * columns, layer)
    for parameter, wide in new.items():
        values = wide.to(parameter.dtype)
        if not bool(values.isfinite().all()):
            raise CausewayError(
                f"scales between {pair[0]!r} and {', '.join(pair[1])} leave {parameter.dtype}: the "
                "weights or the data are not finite, or model.float() is needed first"
            )
        old.setdefault(parameter, parameter.detach().clone())
        parameter.copy_(values)


def _in_batches(
    model: nn.Module, found: list[Pair], given: list[tuple[Any, ...]], named: bool
) -> list[Pair]:
    """Without the pairs across a flatten of what is no batch, or across a view that does not keep
    a sample in a row: columns are no channels' then. An error for one that the user `named`.
    """
    batched: dict[str, bool] = {}
    batch: dict[str, int] = {}

    def after_convolution(name: str) -> Any:
        def see(module: Any, _given: Any, out: torch.Tensor) -> None:
            batch[name] = out.shape[0] if out.dim() == _dims(module) + 2 else -1

        return see

    def before_linear(name: str) -> Any:
        def see(_module: Any, inputs: Any) -> None:
            whole = inputs[0].dim() == 2 and inputs[0].shape[0] == batch.get(name)
            batched[name] = batched.get(name, True) and whole

        return see

    module = model.get_submodule
    flat = {b: after[0] for b, after in found if _flat(module(b), module(after[0]))}
    if not flat:
        return found
    hooks = [module(n).register_forward_hook(after_convolution(n)) for n in flat]
    hooks += [module(to).register_forward_pre_hook(before_linear(n)) for n, to in flat.items()]
    try:
        for inputs in given:
            model(*inputs)
    finally:
        for each in hooks:
            each.remove()
    wrong = sorted(n for n in flat if not batched.get(n, False))
    kept = [p for p in found if p[0] not in wrong]
    if wrong and (named or not kept):
        raise CausewayError(
            f"{wrong[0]!r} gives no batches [n, channels, ...] that become a row a sample with "
            "this data: its channels are no columns of the layer that follows"
        )
    return kept


def _watched(
    model: nn.Module, names: list[str], given: list[tuple[Any, ...]]
) -> tuple[Any, dict[str, torch.Tensor]]:
    """The model's outputs for the first batch, and the range of each input channel by layer."""
    ranges: dict[str, torch.Tensor] = {}

    def hook(name: str) -> Any:
        def watch(module: Any, inputs: Any) -> None:
            sizes = inputs[0].abs().movedim(inputs[0].dim() - 1 - _dims(module), -1)
            now = _double(sizes.flatten(0, -2).amax(0))
            ranges[name] = torch.maximum(ranges[name], now) if name in ranges else now

        return watch

    hooks = [model.get_submodule(n).register_forward_pre_hook(hook(n)) for n in names]
    try:
        outputs = [model(*inputs) for inputs in given]
    finally:
        for each in hooks:
            each.remove()
    for name in names:
        if name not in ranges:
            raise CausewayError(f"{name!r} did not run with these batches")
        if not bool(ranges[name].isfinite().all()):
            raise CausewayError(f"inputs of {name!r} are not finite with these batches")
    return outputs[0], ranges


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    for leaf in torch.utils._pytree.tree_leaves(outputs):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            yield _double(leaf)


def _check_same(expected: Any, outputs: Any, pairs: list[Pair]) -> None:
    before, after = list(_tensors(expected)), list(_tensors(outputs))
    if not before:
        raise CausewayError("the model gives no tensor in floating point to compare")
    leaf = next(x for x in torch.utils._pytree.tree_leaves(expected) if isinstance(x, torch.Tensor))
    bound = 5e-2 if leaf.dtype in (torch.float16, torch.bfloat16) else 1e-3
    for a, b in zip(before, after, strict=True):
        if a.numel() and not float((a - b).abs().max()) <= bound * float(a.abs().max()):
            raise CausewayError(
                "with these scales the model computes something else: one of the pairs is not "
                "all that reads its first layer, or more lies between "
                f"({pairs[0][0]!r} to {', '.join(pairs[0][1])}, ...)"
            )
