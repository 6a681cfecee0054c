"""Graphs: work that is captured once and replayed with one call, as torch.cuda has it.

A captured stream runs nothing. What operators would put on it is noted, and `replay` puts it there
again: the same kernels on the same memory, without Python, autograd or dispatch. So inputs are
written into the tensors that the capture read, results are read from those that it made, and random
numbers go on from replay to replay. What a replay could not repeat is refused at once, with the
operator: numbers that the host reads, sizes that depend on data, operators on the host.

Any vendor has graphs. torch.accelerator.Graph is the same by torch's own name.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from causeway import _C
from causeway.device.lazy import _lazy_init, device_name
from causeway.device.selection import synchronize
from causeway.device.small_launches import merged_source
from causeway.device.streams import Stream, current_stream, is_current_stream_capturing, stream

Pool = tuple[int, int]

_C.set_merger(merged_source)


def graph_pool_handle() -> Pool:
    """Return a name for memory that several graphs share: pass it as `pool` to each.

    Graphs that share memory are replayed one after the other, in the order of their captures,
    where the results of one are to live until the next.
    """
    return _C.new_pool_id()


class CUDAGraph:
    """A graph of the device: captured, then replayed.

    With `keep_graph`, `instantiate` is called by the program, or by the first replay.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = _C.Graph(keep_graph)
        self._inputs: _Inputs | None = None

    def capture_begin(
        self,
        pool: Pool | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begin to capture the current stream, which must not be the default one.

        `capture_error_mode` says of CUDA what other threads may do meanwhile: "global",
        "thread_local" or "relaxed". Here they may do anything, whatever it says. With
        `check_input_liveness` a replay raises RuntimeError where a tensor from before the capture,
        which the graph reads or writes, is gone: its memory may be another's by then.
        """
        if capture_error_mode not in ("global", "thread_local", "relaxed", "default"):
            raise ValueError(
                f"capture_error_mode is {capture_error_mode!r}; it must be global, thread_local, "
                "relaxed or default"
            )
        _lazy_init()
        self._graph.begin(pool or (0, 0))
        self._inputs = None
        if check_input_liveness:
            self._inputs = _Inputs()
            self._inputs.open()

    def capture_end(self) -> None:
        """End the capture. Raises RuntimeError, with the reason, where it failed on the way."""
        if self._inputs:
            self._inputs.close()
        self._graph.end()
        if not len(self):
            warnings.warn(
                "nothing was captured: no work was put on the stream, nor on one that waited for "
                "it",
                stacklevel=2,
            )

    def _abort(self) -> None:
        if self._inputs:
            self._inputs.close()
        self._graph.abort()

    def instantiate(self) -> None:
        """Make the captured graph ready for `replay`. Raises RuntimeError without `keep_graph`."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Put the captured work on the current stream, and return."""
        if self._inputs:
            self._inputs.check()
        self._graph.replay()

    def reset(self) -> None:
        """Forget what was captured, and give its memory back."""
        if self._inputs:
            self._inputs.close()
        self._inputs = None
        self._graph.reset()

    def pool(self) -> Pool:
        """Return the name of its memory, for another graph to share."""
        return self._graph.pool()

    def enable_debug_mode(self) -> None:
        """Keep what `debug_dump` writes. To be called before the capture."""
        self._graph.keep_dump(True)

    def debug_dump(self, debug_path: str) -> None:
        """Write the captured steps to `debug_path`, in the dot language of Graphviz."""
        self._graph.dump(debug_path)

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Do nothing: each generator that a capture draws from goes on in its replays."""

    def __len__(self) -> int:
        """Return the number of steps that a replay takes."""
        return len(self._graph)


class _Inputs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tensors from before a capture that its operators read or write, by their memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_open = False
        self.made: set[int] = set()
        self.found: dict[int, tuple[weakref.ref[Any], str]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        for tensor in _strided((args, kwargs)):
            place = tensor.untyped_storage().data_ptr()
            if place and place not in self.made and place not in self.found:
                what = f"{tuple(tensor.shape)} {tensor.dtype}, of {func}"
                self.found[place] = weakref.ref(tensor.untyped_storage()), what
        for tensor in _strided(result):
            if (place := tensor.untyped_storage().data_ptr()) not in self.found:
                self.made.add(place)
        return result

    def open(self) -> None:
        self.is_open = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def check(self) -> None:
        gone = [what for place, (of, what) in self.found.items() if _moved(of(), place)]
        if gone:
            raise RuntimeError(
                f"the replay of a graph would use memory of {len(gone)} tensors that are gone: "
                f"{'; '.join(gone[:5])}. Keep what a capture reads and writes for as long as its "
                "graph"
            )


def _strided(values: Any) -> list[torch.Tensor]:
    tensors = (v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor))
    return [t for t in tensors if t.layout == torch.strided and t.device.type != "meta"]


def _moved(storage: Any, place: int) -> bool:
    return storage is None or storage.data_ptr() != place


class graph:
    """Context manager that captures what its body puts on a stream into `cuda_graph`.

    `stream` is captured, or one that all captures share; the options are of
    `CUDAGraph.capture_begin`. Where the body raises, the capture is
    dropped: the stream and its memory are as before, and the graph is empty.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        *,
        check_input_liveness: bool = False,
    ) -> None:
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness

    def __enter__(self) -> None:
        synchronize()
        if getattr(torch.compiler.config, "force_cudagraph_gc", True):
            gc.collect()
        torch.accelerator.empty_cache()
        self._context = stream(self.capture_stream)
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(
                self.pool, self.capture_error_mode, self.check_input_liveness
            )
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.cuda_graph.capture_end()
            else:
                self.cuda_graph._abort()
        finally:
            self._context.__exit__(kind, error, trace)


# --- optimizers ---------------------------------------------------------------------------------


def look_at_optimizers() -> None:
    """From the first capture on, refuse optimizers that compute on the host: its part of a step
    would be the same in each replay."""

    def before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not is_current_stream_capturing():
            return
        name = type(optimizer).__name__
        for group in optimizer.param_groups:
            on_device = group.get("capturable") or group.get("fused")
            if ("capturable" in group and not on_device) or _counts_on_host(optimizer, group):
                can = f"Make it with {name}(..., capturable=True), or step"
                _C.refuse_capture(
                    f"a step of {name}, which keeps its count of steps on the host,",
                    f"{can if 'capturable' in group else 'Step'} outside of the capture",
                )

    register_optimizer_step_pre_hook(before_step)


def _counts_on_host(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    steps = [optimizer.state[p]["step"] for p in group["params"] if "step" in optimizer.state[p]]
    return any(not isinstance(s, torch.Tensor) or s.device.type == "cpu" for s in steps)


# --- callables ----------------------------------------------------------------------------------


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Pool | None = None,
) -> Any:
    """Return `callables` (modules or functions, one or a tuple) as graphs, forward and backward.

    `sample_args` are a tuple of tensors for each; later inputs have the same shapes and
    requires_grad, and dtypes that the captured ones hold. A module is changed in place and
    returned: it runs its graph while it is in the mode, training or not, that it was captured in,
    and its own forward otherwise. Several are captured in the order in which a step calls them, and
    share memory.

    Raises:
        ValueError: arguments that no graph can be made of; the message says which.
    """
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    if len(functions) != len(samples):
        raise ValueError(f"{len(functions)} callables need as many sample_args, got {len(samples)}")
    if torch.is_autocast_enabled(device_name()) and torch.is_autocast_cache_enabled():
        raise ValueError(
            "autocast keeps converted weights between calls, and a graph cannot: use "
            "torch.autocast(..., cache_enabled=False) around make_graphed_callables"
        )
    _lazy_init()
    parts = [
        _Part(function, sample, allow_unused_input)
        for function, sample in zip(functions, samples, strict=True)
    ]
    pool = pool or graph_pool_handle()
    side = Stream()
    side.wait_stream(current_stream())
    with stream(side):
        for part in parts:
            part.warm_up(num_warmup_iters)
    current_stream().wait_stream(side)
    for part in parts:
        part.capture_forward(pool)
    for part in reversed(parts):
        part.capture_backward(pool)
    made = tuple(part.result() for part in parts)
    return made[0] if single else made


class _Part:
    """One callable, its two graphs, and the tensors that they read and write."""

    def __init__(self, function: Callable[..., Any], sample: Any, allow_unused: bool) -> None:
        leaves, self.inputs_spec = pytree.tree_flatten(tuple(sample))
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise ValueError("sample_args must be tensors, or tuples, lists and dicts of tensors")
        self.function = function
        # Copies, as each call writes its own inputs there.
        self.inputs: list[torch.Tensor] = [
            t.detach().clone().requires_grad_(t.requires_grad) for t in leaves
        ]
        self.parameters: list[torch.Tensor] = []
        if isinstance(function, torch.nn.Module):
            if any(buffer.requires_grad for buffer in function.buffers()):
                raise ValueError("a module with buffers that require gradients cannot be graphed")
            for hooks in ("_backward_hooks", "_forward_hooks", "_forward_pre_hooks"):
                if getattr(function, hooks):
                    raise ValueError(
                        f"the module has {hooks[1:]}, which a graph would not call; register them "
                        "after make_graphed_callables"
                    )
            self.parameters = [p for p in function.parameters() if p.requires_grad]
        self.reads = [t for t in [*self.inputs, *self.parameters] if t.requires_grad]
        self.allow_unused = allow_unused
        self.forward = CUDAGraph()
        self.backward: CUDAGraph | None = None
        self.outputs: list[torch.Tensor] = []
        self.given: list[torch.Tensor | None] = []  # gradients of outputs
        self.found: list[torch.Tensor | None] = []  # gradients of what it reads

    def call(self) -> Any:
        return self.function(*pytree.tree_unflatten(self.inputs, self.inputs_spec))

    def gradients(self, outputs: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
        return list(
            torch.autograd.grad(
                outputs=[o for o in outputs if o.requires_grad],
                inputs=self.reads,
                grad_outputs=given,
                only_inputs=True,
                allow_unused=self.allow_unused,
            )
        )

    def warm_up(self, times: int) -> None:
        for _ in range(max(times, 1)):
            outputs = pytree.tree_leaves(self.call())
            differentiable = [o for o in outputs if o.requires_grad]
            if differentiable and self.reads:
                self.gradients(outputs, [torch.empty_like(o) for o in differentiable])

    def capture_forward(self, pool: Pool) -> None:
        with graph(self.forward, pool=pool):
            result = self.call()
        self.outputs, self.outputs_spec = pytree.tree_flatten(result)

    def capture_backward(self, pool: Pool) -> None:
        differentiable = [o for o in self.outputs if o.requires_grad]
        if not differentiable or not self.reads:
            return
        given = [torch.empty_like(o) for o in differentiable]
        self.backward = CUDAGraph()
        with graph(self.backward, pool=pool):
            found = self.gradients(self.outputs, given)
        # The graphs need no autograd any more; its nodes would tie parameters to this stream.
        self.outputs, made = [o.detach() for o in self.outputs], self.outputs
        places = iter(given)
        self.given = [next(places) if o.requires_grad else None for o in made]
        by_tensor = iter(found)
        self.found = [
            next(by_tensor) if t.requires_grad else None for t in [*self.inputs, *self.parameters]
        ]

    def run(self) -> Callable[..., Any]:
        part = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
                for static, now in zip(part.inputs, tensors, strict=False):
                    if static.data_ptr() != now.data_ptr():
                        static.copy_(now)
                part.forward.replay()
                return tuple(o.detach() for o in part.outputs)

            @staticmethod
            def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
                assert part.backward is not None
                for static, now in zip(part.given, gradients, strict=True):
                    if static is not None and static.data_ptr() != now.data_ptr():
                        static.copy_(now)
                part.backward.replay()
                return tuple(None if g is None else g.detach() for g in part.found)

        def graphed(*args: Any) -> Any:
            leaves, spec = pytree.tree_flatten(args)
            if spec != part.inputs_spec:
                raise ValueError(f"captured for arguments like {part.inputs_spec}, got {spec}")
            for i, (static, now) in enumerate(zip(part.inputs, leaves, strict=True)):
                # Under autocast a part may be given less than what it was captured with.
                holds = torch.promote_types(static.dtype, now.dtype) == static.dtype
                if static.shape != now.shape or not holds:
                    raise ValueError(
                        f"argument {i} was captured as {static.dtype} {tuple(static.shape)}, got "
                        f"{now.dtype} {tuple(now.shape)}"
                    )
            outputs = Graphed.apply(*leaves, *part.parameters)  # type: ignore[no-untyped-call]
            return pytree.tree_unflatten(list(outputs), part.outputs_spec)

        return graphed

    def result(self) -> Any:
        graphed = self.run()
        if not isinstance(self.function, torch.nn.Module):
            return graphed
        module, training, own = self.function, self.function.training, self.function.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            if module.training == training and not kwargs:
                return graphed(*args)
            return own(*args, **kwargs)

        module.forward = forward
        return module
