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
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from causeway import _C
from causeway.device.lazy import _lazy_init
from causeway.device.selection import synchronize
from causeway.device.streams import Stream, current_stream, is_current_stream_capturing, stream

Pool = tuple[int, int]


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

    def capture_begin(self, pool: Pool | None = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream, which must not be the default one.

        `capture_error_mode` says of CUDA what other threads may do meanwhile: "global",
        "thread_local" or "relaxed". Here they may do anything, whatever it says.
        """
        if capture_error_mode not in ("global", "thread_local", "relaxed", "default"):
            raise ValueError(
                f"capture_error_mode is {capture_error_mode!r}; it must be global, thread_local, "
                "relaxed or default"
            )
        _lazy_init()
        self._graph.begin(pool or (0, 0))

    def capture_end(self) -> None:
        """End the capture. Raises RuntimeError, with the reason, where it failed on the way."""
        self._graph.end()

    def instantiate(self) -> None:
        """Make the captured graph ready for `replay`."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Put the captured work on the current stream, and return."""
        self._graph.replay()

    def reset(self) -> None:
        """Forget what was captured, and give its memory back."""
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


class graph:
    """Context manager that captures what its body puts on a stream into `cuda_graph`.

    `stream` is captured, or one that all captures share. Where the body raises, the capture is
    dropped: the stream and its memory are as before, and the graph is empty.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode

    def __enter__(self) -> None:
        synchronize()
        gc.collect()
        torch.accelerator.empty_cache()
        self._context = stream(self.capture_stream)
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
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
                self.cuda_graph._graph.abort()
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

    `sample_args` are a tuple of tensors for each; later inputs have the same shapes, dtypes and
    requires_grad. A module is changed in place and returned: it runs its graph while it is in the
    mode, training or not, that it was captured in, and its own forward otherwise. Several are
    captured in the order in which a step calls them, and share memory.

    Raises:
        ValueError: arguments that no graph can be made of; the message says which.
    """
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    if len(functions) != len(samples):
        raise ValueError(f"{len(functions)} callables need as many sample_args, got {len(samples)}")
    if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
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
                if static.shape != now.shape or static.dtype != now.dtype:
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
