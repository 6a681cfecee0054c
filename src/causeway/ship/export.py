"""Write a model to a file that runs without Python and without torch: `causeway.export`.

The model is compiled as torch.compile does it, captured as a device graph, and written: kernels as
their sources, weights, a plan of memory, and test vectors. include/causeway/run.h is the runtime.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from causeway import _C, __version__, atomic, code
from causeway.compile import lines
from causeway.device.merge import merged
from causeway.errors import CausewayError, VendorError
from causeway.ship import file, paper, sizes, steps
from causeway.ship import weights as weights_files
from causeway.ship.costs import Costs
from causeway.ship.plan import MOVED, OPERATIONS, Program, of_graph

_BY_ARCHITECTURE = 4  # CW_BINARY_ARCHITECTURE
_LANGUAGES = {"c": 1, "opencl": 2, "cuda": 3, "ascend_simt": 4}
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
    verify_steps: bool = False,
    dynamic: str | None = None,
    dynamic_shapes: Any = None,
    weights: str | os.PathLike[str] | None = None,
    binaries: bool = False,
) -> Path:
    """Write `module`, called with `args`, to the file `path`, and return its path.

    Args:
        module: A module or function whose tensors are on the device.
        args: Its positional arguments: tensors, or tuples, lists and dicts of tensors. Their shapes
            are those of the file, but for a size that may differ.
        path: The file; `model.cw`. It is written whole or not at all.
        compiled: Fuse operators as torch.compile does; False: call them one after the other.
        names: The names of its inputs, in the order of their tensors; without, those of its
            parameters.
        vectors: Keep `args` and the results in the file, for `cw verify`.
        verify_steps: Keep numbers of what each step writes too, so that `cw verify` names the first
            step that differs: at most 4 KiB a step, and 16 MiB together.
        dynamic: A size that may differ, as `"batch=1..64"`: the first dimension of each input.
        dynamic_shapes: The same as torch.export has it, with one torch.export.Dim.
        weights: A file for the weights, beside `path` or in a folder below, that several models may
            share: what it has already is not written again.
        binaries: Keep what this chip's compiler makes of the sources too. Who loads the file may
            take it on the same chip and driver, or architecture, with a flag; the sources serve
            everybody else.

    On a device on paper, which compiles for a chip that is not here and runs nothing, `module` and
    `args` are given on the CPU, and the vectors are what they compute there.

    Raises:
        OSError: `path` or `weights` cannot be written, before anything is done.
        CausewayError: something that a file cannot hold, such as numbers that the host reads; the
            message names the operator and the way out.
    """
    atomic.check(path, weights)
    leaves, spec = pytree.tree_flatten(tuple(args))
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise CausewayError(
                f"args has {leaf!r}: a file's inputs are tensors. Bind other values with "
                "functools.partial, or make them part of the module"
            )
    named = _names(module, len(leaves), names)
    if verify_steps and not vectors:
        raise CausewayError("verify_steps needs vectors: steps are compared in a run of them")
    known = None
    if paper.on_paper():
        if verify_steps:
            raise CausewayError(
                f"{_C.device_info(0)['name']} runs no kernel, so it has no numbers of steps: "
                "export without verify_steps, or where the chip is"
            )
        known = paper.Model(module, leaves, spec, named)
        module, leaves = known.module, known.leaves
    device = _device(module, leaves)
    info = _C.compiler_info(device.index or 0)
    if not info:
        raise CausewayError(
            f"{device.type!r} has no compiler (code.v1), whose kernels a file is made of"
        )
    if binaries and not _C.code_info(device.index or 0)["binaries"] & 1:
        raise CausewayError(
            f"the compiler of {device.type!r} takes no binaries (code.build_binary), so a file "
            "cannot have any for it: export without binaries, as `--target any` does"
        )
    where = Path(path)
    elsewhere = None if weights is None else weights_files.name_beside(where, Path(weights))
    dynamics = None
    if dynamic is not None and dynamic_shapes is not None:
        raise CausewayError("dynamic and dynamic_shapes say the same: give one of them")
    if dynamic is not None:
        dynamics = sizes.of_text(dynamic, leaves)
    elif dynamic_shapes is not None:
        dynamics = sizes.of_shapes(dynamic_shapes, named, leaves)

    inputs = [_own(leaf, device) for leaf in leaves]
    given = [file.raw(t) for t in inputs]
    captures = _Captures(module, spec, device, compiled, dynamics)
    try:
        if dynamics:
            captures.program(inputs)  # says what a file cannot hold, before all sizes are tried
        program, outputs, graph = captures.program(inputs)
        checks = steps.references(graph, program, device.index or 0) if verify_steps else []
        weight_data = _weight_data(program, device.index or 0)
        graph.replay()
        torch.accelerator.synchronize(device)
        if weight_data != _weight_data(program, device.index or 0):
            raise CausewayError(
                "the model writes to its own buffers or parameters, which a file's sessions share: "
                "call model.eval(), or make what changes an input and an output"
            )
        for name, before, tensor in zip(named, given, inputs, strict=True):
            if before != file.raw(tensor):
                raise CausewayError(
                    f"the model writes to its input {name!r}: clone it first, and return what "
                    "changed"
                )
        if known:
            known.check(program, outputs)
            outputs = known.outputs
        ports = _ports(program, inputs, outputs, named, vectors)
        if dynamics:
            program, checks = captures.at_all_sizes(inputs, dynamics, checks)
            if known:
                known.check(program, outputs)
            weight_data = captures.weight_data(program)
            ports = _at_most(ports, program)
    finally:
        captures.close()
    if info["language"] == "opencl":
        program.functions = _in_one_source(program.functions, device)
    constants = program.put_weights(weight_data)
    parts = _parts(program, constants)
    made = _binaries(program, device) if binaries else None
    if weights is not None:
        blobs = {p.digest: constants[p.place : p.place + p.bytes] for p in parts}
        weights_files.add(Path(weights), blobs)
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
        about=_about(program, ports, module, compiled, checks)
        | _about_parts(parts, elsewhere, made),
        tellers=_C.tellers(),
        checks=checks,
        parts=parts,
        elsewhere=elsewhere,
        binaries=made,
    )
    return where


class _Captures:
    """Captures a model with inputs of some sizes."""

    def __init__(
        self,
        module: Any,
        spec: Any,
        device: torch.device,
        compiled: bool,
        dynamic: sizes.Dynamic | None,
    ) -> None:
        self.device, self.compiled, self.dynamic = device, compiled, dynamic
        self.lines = lines.Lines()
        self.read: dict[tuple[int, int], bytes] = {}  # weights by address and sum

        def flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
            outputs = pytree.tree_leaves(module(*pytree.tree_unflatten(list(tensors), spec)))
            return [
                o.contiguous().clone() if _is_given(o, tensors) else o.contiguous() for o in outputs
            ]

        self.flat = flat
        self.calls: dict[Any, Any] = {}
        _C.keep_sources(True)
        torch._dynamo.reset()

    def close(self) -> None:
        _C.keep_sources(False)

    def _call(self, inputs: Sequence[torch.Tensor]) -> Any:
        if not self.compiled:
            return self.flat
        # torch.compile takes a size of 1 for one of its own.
        size = None
        if self.dynamic and self.dynamic.example(inputs) > 1:
            size = self.dynamic.name
            for i, dim in self.dynamic.dims.items():
                torch._dynamo.mark_dynamic(inputs[i], dim)
        if size not in self.calls:
            flat = functools.partial(self.flat) if self.calls else self.flat
            self.calls[size] = torch.compile(flat, fullgraph=True, dynamic=None if size else False)
        return self.calls[size]

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        with (
            torch.no_grad(),
            _no_fast_path(),
            torch._dynamo.config.patch(allow_rnn=True),
            # A kept graph says the lines of the program that it was first compiled for, or none.
            torch._inductor.config.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
            torch._functorch.config.patch(enable_autograd_cache=False),
            self.lines,
            contextlib.nullcontext() if self.compiled else lines.CallLines(),
        ):
            yield

    def program(
        self, inputs: Sequence[torch.Tensor], warm: int = 2
    ) -> tuple[Program, list[torch.Tensor], Any]:
        """The program for these inputs, its outputs and the captured graph."""
        call = self._call(inputs)
        graph = _C.Graph(True)
        self.lines.begin(graph)
        with self._settings():
            for _ in range(warm):
                call(*inputs)
            torch.accelerator.synchronize(self.device)
            stream = torch.Stream(device=self.device)
            self.lines.begin(graph)
            costs = Costs()
            costs.begin(graph)
            with stream, costs:
                graph.begin()
                try:
                    outputs = list(call(*inputs))
                    if self.dynamic:
                        outputs = _apart(outputs)
                except BaseException:
                    graph.abort()
                    raise
                graph.end()
        index = self.device.index or 0
        program = of_graph(graph, index, inputs, outputs, self.lines.of_step)
        costs.put(program, self.lines.work)
        program.lay_out()
        return program, outputs, graph

    def at_all_sizes(
        self, inputs: Sequence[torch.Tensor], dynamic: sizes.Dynamic, checks: list[steps.Check]
    ) -> tuple[Program, list[steps.Check]]:
        """One program for all sizes, and the checks as they are in it."""
        example = dynamic.example(inputs)
        programs: dict[int, Program] = {}
        shapes: dict[int, list[list[int]]] = {}
        sums: dict[tuple[int, int], int] = {}
        for size in range(dynamic.least, dynamic.most + 1):
            own = [_own(t, self.device) for t in dynamic.at(size, inputs)]
            program, outputs, graph = self.program(own, warm=1)
            programs[size] = program
            shapes[size] = [list(t.shape) for t in [*own, *outputs]]
            data = _weight_data(program, self.device.index or 0)
            for buffer, mine in zip(program.weights(), data, strict=True):
                sums[size, buffer.start] = zlib.crc32(mine)
                self.read[buffer.start, sums[size, buffer.start]] = mine
            graph.reset()
        merged = sizes.merged(
            dynamic, programs, shapes, lambda size, b: sums.get((size, b.start), 0), example
        )
        merged.lay_out()
        assert merged.sizes is not None
        profile = next(p for p in merged.sizes.profiles if p.first <= example <= p.last)
        return merged, [dataclasses.replace(c, step=c.step + profile.step) for c in checks]

    def weight_data(self, program: Program) -> list[bytes]:
        """What the weights of a program for all sizes have."""
        return [self.read[b.start, b.content] for b in program.weights()]


@contextlib.contextmanager
def _no_fast_path() -> Iterator[None]:
    """Layers of attention as their operators, so that attention is one kernel. In inference torch
    has one operator for a whole layer, whose decomposition has the matrix of scores.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _apart(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs that are whole blocks of their own: so they lie alike at all sizes."""
    seen: set[int] = set()
    made = []
    for output in outputs:
        storage = output.untyped_storage()
        whole = storage.nbytes() == output.numel() * output.element_size()
        own = whole and storage.data_ptr() not in seen
        made.append(output if own else output.clone())
        seen.add(made[-1].untyped_storage().data_ptr())
    return made


def _at_most(ports: list[dict[str, Any]], program: Program) -> list[dict[str, Any]]:
    """Inputs and outputs as a program for all sizes has them: with their largest shapes."""
    places = [*program.inputs, *program.outputs]
    for number, (port, place) in enumerate(zip(ports, places, strict=True)):
        element = getattr(torch, _DTYPES[port["dtype"]]).itemsize
        found = program.sizes
        assert found is not None
        port["place"], port["sizes"] = place, {}
        for patch in found.ports:
            if patch.of == number:
                at = [
                    (patch.base + patch.slope * size) // patch.divisor
                    for size in (found.least, found.most)
                ]
                port["shape"][patch.place] = max(at)
                port["sizes"][patch.place] = [patch.base, patch.slope, patch.divisor]
        port["bytes"] = element * math.prod(port["shape"])
    return ports


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
            data = file.raw(tensor)
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


def _weight_data(program: Program, device: int) -> list[bytes]:
    """What the weights of a program have now."""
    return [_C.read_memory(device, b.start, b.bytes) for b in program.weights()]


def _parts(program: Program, constants: bytes) -> list[weights_files.Part]:
    """The weights by SHA-256: a part is what was one block of memory, or several of equal bytes."""
    places = sorted({(b.place, b.bytes) for b in program.weights()})
    return [weights_files.part(constants[place : place + size], place) for place, size in places]


def _in_one_source(functions: list[tuple[str, str]], device: torch.device) -> list[tuple[str, str]]:
    """The kernels from as few sources as there can be. The chip's compiler has the last word."""
    found = merged(functions)
    try:
        for source in {s for _, s in found} - {s for _, s in functions}:
            code.Program(source, options="-w", device=device)
    except VendorError as error:
        warnings.warn(
            "causeway: the kernels stay in sources of their own, which takes longer to load: "
            f"{error}",
            stacklevel=3,
        )
        return functions
    return found


def _binaries(program: Program, device: torch.device) -> file.Binaries:
    """What the compiler makes of the sources, and for which chip that is."""
    index = device.index or 0
    name, driver = _C.device_info(index)["name"], _C.code_info(index)["driver"]
    if _C.code_info(index)["binaries"] & _BY_ARCHITECTURE:
        name, driver = _C.device_attribute(index, "architecture") or name, ""
    key = f"{_C.vendor_state()['name']}\n{name}\n{driver}"
    compiler = _C.compiler_info(index)
    assert compiler is not None
    options = "-w" if compiler["language"] == "opencl" else ""
    sources = dict.fromkeys(source for _, source in program.functions)
    return file.Binaries(
        key, {s: code.Program(s, options=options, device=device).binary() for s in sources}
    )


def _about_parts(
    parts: Sequence[weights_files.Part], elsewhere: str | None, binaries: file.Binaries | None
) -> dict[str, Any]:
    about: dict[str, Any] = {"weights file": elsewhere} if elsewhere else {}
    about["weights"] = [{"sha256": p.digest.hex(), "bytes": p.bytes} for p in parts]
    if binaries:
        vendor, chip, driver = binaries.key.split("\n")
        sizes = [len(data) for data in binaries.by_source.values()]
        about["binaries"] = {"vendor": vendor, "device": chip, "driver": driver, "bytes": sizes}
    return about


def _about(
    program: Program,
    ports: Sequence[dict[str, Any]],
    module: Any,
    compiled: bool,
    checks: Sequence[steps.Check],
) -> dict[str, Any]:
    """The readable twin."""
    expressions: dict[int, dict[str, Any]] = {}
    for patch in (q for p in (program.sizes.profiles if program.sizes else ()) for q in p.patches):
        title = {OPERATIONS: "operations", MOVED: "bytes"}.get(patch.what)
        if title:
            number = [patch.base, patch.slope, patch.divisor] if patch.divisor else patch.table
            expressions.setdefault(patch.of, {})[title] = number
    about = {
        "format": file.VERSION,
        "made by": f"causeway {__version__}, torch {torch.__version__}",
        "model": type(module).__name__
        if isinstance(module, torch.nn.Module)
        else getattr(module, "__name__", type(module).__name__),
        "mode": "fused" if compiled else "layer",
        **{title: [_port(p) for p in ports if p["kind"] == kind] for kind, title in _SIDES},
        "arena bytes": program.arena,
        "weight bytes": program.constants,
        "steps": [
            {"name": s.name, "line": s.line, "operations": s.operations, "bytes": s.moved}
            | expressions.get(i, {})
            for i, s in enumerate(program.steps)
        ],
    }
    if checks:
        about["steps checked"] = len({c.step for c in checks})
        about["bytes of checks"] = sum(len(c.data) for c in checks)
    if program.sizes:
        found = program.sizes
        about["size"] = {"name": found.name, "least": found.least, "most": found.most}
        about["profiles"] = [
            {"from": p.first, "to": p.last, "step": p.step, "steps": p.steps}
            for p in found.profiles
        ]
    return about


_SIDES = ((0, "inputs"), (1, "outputs"))


def _port(port: dict[str, Any]) -> dict[str, Any]:
    found = {"name": port["name"], "dtype": _DTYPES[port["dtype"]], "shape": port["shape"]}
    if port.get("sizes"):
        found["sizes"] = port["sizes"]
    return found
