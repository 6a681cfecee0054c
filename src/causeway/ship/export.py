"""Write a model to a file that runs without Python and without torch: `causeway.export`.

The model is compiled as torch.compile does it, captured as a device graph, and written: kernels as
their sources, weights, a plan of memory, and test vectors. include/causeway/run.h is the runtime.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from causeway import _C, __version__
from causeway.errors import CausewayError
from causeway.ship import file
from causeway.ship.plan import CONSTANT, Program, of_graph

_LANGUAGES = {"c": 1, "opencl": 2, "cuda": 3}
_DTYPES = (  # by their bit numbers in cw_dtypes
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
)


def export(
    module: Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    compiled: bool = True,
    names: Sequence[str] | None = None,
    vectors: bool = True,
) -> Path:
    """Write `module`, called with `args`, to the file `path`, and return its path.

    Args:
        module: A module or function whose tensors are on the device.
        args: Its positional arguments: tensors, or tuples, lists and dicts of tensors. Their shapes
            are those of the file.
        path: The file; `model.cw`. It is written whole or not at all.
        compiled: Fuse operators as torch.compile does; False: call them one after the other.
        names: The names of its inputs, in the order of their tensors; without, those of its
            parameters.
        vectors: Keep `args` and the results in the file, for `cw verify`.

    Raises:
        CausewayError: something that a file cannot hold, such as numbers that the host reads; the
            message names the operator and the way out.
    """
    leaves, spec = pytree.tree_flatten(tuple(args))
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise CausewayError(
                f"args has {leaf!r}: a file's inputs are tensors. Bind other values with "
                "functools.partial, or make them part of the module"
            )
    device = _device(module, leaves)
    info = _C.compiler_info(device.index or 0)
    if not info:
        raise CausewayError(
            f"{device.type!r} has no compiler (code.v1), whose kernels a file is made of"
        )

    inputs = [_own(leaf, device) for leaf in leaves]
    given = [_raw(t) for t in inputs]
    names = _names(module, len(inputs), names)

    def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
        outputs = pytree.tree_leaves(module(*pytree.tree_unflatten(list(tensors), spec)))
        return [
            o.contiguous().clone() if _is_given(o, tensors) else o.contiguous() for o in outputs
        ]

    _C.keep_sources(True)
    graph = _C.Graph(True)
    try:
        torch._dynamo.reset()
        call = torch.compile(flat, fullgraph=True, dynamic=False) if compiled else flat
        with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
            for _ in range(2):
                call(*inputs)
            torch.accelerator.synchronize(device)
            stream = torch.Stream(device=device)
            with stream:
                graph.begin()
                try:
                    outputs = list(call(*inputs))
                except BaseException:
                    graph.abort()
                    raise
                graph.end()
        program = of_graph(graph, device.index or 0, inputs, outputs)
    finally:
        _C.keep_sources(False)
    constants = _constants(program, device.index or 0)
    graph.replay()
    torch.accelerator.synchronize(device)
    if constants != _constants(program, device.index or 0):
        raise CausewayError(
            "the model writes to its own buffers or parameters, which a file's sessions share: "
            "call model.eval(), or make what changes an input and an output"
        )
    for name, before, tensor in zip(names, given, inputs, strict=True):
        if before != _raw(tensor):
            raise CausewayError(
                f"the model writes to its input {name!r}: clone it first, and return what changed"
            )
    ports = _ports(program, inputs, outputs, names, vectors)
    where = Path(path)
    file.write(
        where,
        program,
        target={
            "language": _LANGUAGES[info["language"]],
            "flags": info["flags"],
            "arithmetic": info["arithmetic"],
            "vendor": f"{_C.vendor_state()['name']}, {_C.device_info(device.index or 0)['name']}",
        },
        ports=ports,
        constants=constants,
        about=_about(program, ports, module),
        tellers=_C.tellers(),
    )
    return where


def _device(module: Any, leaves: Sequence[torch.Tensor]) -> torch.device:
    name = torch._C._get_privateuse1_backend_name()
    own = [*module.parameters(), *module.buffers()] if isinstance(module, torch.nn.Module) else []
    for tensor in [*leaves, *own]:
        if tensor.device.type == name:
            return tensor.device
    raise CausewayError(
        f"neither the arguments nor the module's weights are on {name!r}: move them there, with "
        f"module.to({name!r})"
    )


def _own(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A dense copy in a block of its own, which becomes the input's place."""
    made = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    return made.copy_(tensor.detach())


def _raw(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes, row-major."""
    if not tensor.numel():
        return b""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _is_given(output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether an output may be memory of an input: it gets memory of its own."""
    return any(output is t or output._base is t for t in inputs)


def _names(module: Any, count: int, names: Sequence[str] | None) -> list[str]:
    if names is not None:
        if len(names) != count or len(set(names)) != count:
            raise CausewayError(
                f"names has {list(names)}: the model has {count} inputs, each with its own"
            )
        return list(names)
    call = module.forward if isinstance(module, torch.nn.Module) else module
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [n for n, p in inspect.signature(call).parameters.items() if p.kind in kinds]
    return own[:count] if len(own) >= count else [f"input{i}" for i in range(count)]


def _ports(
    program: Program,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    names: Sequence[str],
    vectors: bool,
) -> list[dict[str, Any]]:
    ports = []
    results = [f"output{i}" for i in range(len(outputs))] if len(outputs) > 1 else ["output"]
    for kind, tensors, places in ((0, inputs, program.inputs), (1, outputs, program.outputs)):
        for i, (tensor, place) in enumerate(zip(tensors, places, strict=True)):
            dtype = str(tensor.dtype).removeprefix("torch.")
            if dtype not in _DTYPES or tensor.dim() > 8:
                raise CausewayError(f"a file holds no {tensor.dim()}-d tensor of {tensor.dtype}")
            data = _raw(tensor)
            ports.append(
                {
                    "name": (results if kind else names)[i],
                    "kind": kind,
                    "place": place,
                    "dtype": _DTYPES.index(dtype),
                    "shape": list(tensor.shape),
                    "bytes": len(data),
                    "vector": data if vectors else None,
                }
            )
    return ports


def _constants(program: Program, device: int) -> bytes:
    whole = bytearray(program.constants)
    for buffer in program.buffers:
        if buffer.kind == CONSTANT and buffer.bytes:
            data = _C.read_memory(device, buffer.start, buffer.bytes)
            whole[buffer.place : buffer.place + buffer.bytes] = data
    return bytes(whole)


def _about(program: Program, ports: Sequence[dict[str, Any]], module: Any) -> dict[str, Any]:
    """The readable twin."""
    return {
        "format": file.VERSION,
        "made by": f"causeway {__version__}, torch {torch.__version__}",
        "model": type(module).__name__ if isinstance(module, torch.nn.Module) else module.__name__,
        **{
            title: [
                {"name": p["name"], "dtype": _DTYPES[p["dtype"]], "shape": p["shape"]}
                for p in ports
                if p["kind"] == kind
            ]
            for kind, title in ((0, "inputs"), (1, "outputs"))
        },
        "arena bytes": program.arena,
        "weight bytes": program.constants,
        "steps": [s.name for s in program.steps],
    }
