"""One side of a verification: runs a script as __main__ and writes down what it computes.

Runs in a process of its own, `python -m causeway.verify JSON SCRIPT ARGUMENTS`. Losses are the
values on which backward() is called, outputs are those of modules that no other module calls. Steps
are those of torch's optimizers or, in a program that has none, calls of backward(). After the steps
asked for, the script is stopped where the next one would begin.

Random numbers of both sides come from one generator on the host: on the device, random operators
run on the CPU, in the program's order, and their results are copied. Else a program that draws on
both would draw other numbers on a machine with two generators.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import random
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from causeway import atomic, program

_MOST = 64  # outputs that are kept


class Enough(BaseException):
    """The steps asked for are done; a BaseException, since programs catch Exception."""


class Observed:
    """What one run of a script computed."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.losses: list[list[float]] = []
        self.gradients: list[list[float]] = []
        self.parameters: list[list[float]] = []
        self.outputs: list[dict[str, Any]] = []
        self._optimizers: dict[int, int] = {}
        self._depth = 0

    def start(self, stack: ExitStack) -> None:
        """Look on from now on, until `stack` is closed."""
        backward = torch.autograd.backward
        for module, name in ((torch.autograd, "backward"),):
            setattr(module, name, self._backward(backward))
            stack.callback(setattr, module, name, backward)
        hooks = importlib.import_module("torch.optim.optimizer")  # torch.optim hides it
        stack.callback(hooks.register_optimizer_step_pre_hook(self._before_step).remove)
        stack.callback(hooks.register_optimizer_step_post_hook(self._after_step).remove)
        modules = torch.nn.modules.module
        stack.callback(modules.register_module_forward_pre_hook(self._enter).remove)
        handle = modules.register_module_forward_hook(self._leave, always_call=True)
        stack.callback(handle.remove)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if len(self.losses) >= self.steps and not self._optimizers and not _has_optimizer():
                raise Enough
            group = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self.losses.append([summary(tensor)["value"] for tensor in group])
            return original(tensors, *args, **kwargs)

        return backward

    def _before_step(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        done = self._optimizers.setdefault(id(optimizer), 0)
        if done >= self.steps:
            raise Enough
        grads = [p.grad for p in _parameters(optimizer) if p.grad is not None]
        self.gradients.append([summary(grad)["norm"] for grad in grads])

    def _after_step(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        self._optimizers[id(optimizer)] = self._optimizers.get(id(optimizer), 0) + 1
        self.parameters.append([summary(p)["norm"] for p in _parameters(optimizer)])

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        self._depth += 1

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and len(self.outputs) < _MOST:
            found = [summary(t) for t in _tensors(output)]
            self.outputs.append({"module": type(module).__name__, "tensors": found})

    @property
    def steps_done(self) -> int:
        """Steps of the optimizer that made the most; calls of backward() where there is none."""
        return max(self._optimizers.values(), default=0 if _has_optimizer() else len(self.losses))


def _has_optimizer() -> bool:
    """Whether the program made an optimizer of torch's, which may not have stepped yet."""
    return any(isinstance(o, torch.optim.Optimizer) for o in gc.get_objects())


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def summary(tensor: torch.Tensor) -> dict[str, Any]:
    """The norm and the mean of a tensor, computed on the host in float64."""
    with torch.no_grad(), _Off():
        here = tensor.detach()
        here = here.to_dense() if here.layout is not torch.strided else here
        flat = torch._C.TensorBase.to(here, "cpu").reshape(-1)
        flat = flat.abs() if flat.is_complex() else flat
        flat = flat.to(torch.float64)
        norm = float(torch.linalg.vector_norm(flat)) if flat.numel() else 0.0
        mean = float(flat.mean()) if flat.numel() else 0.0
    kind = str(tensor.dtype).removeprefix("torch.")
    return {"shape": list(tensor.shape), "dtype": kind, "norm": norm, "value": mean}


# --- one stream of random numbers ----------------------------------------------------------------


class _Off:
    """No dispatch mode and no autocast looks at what the observer computes."""

    def __enter__(self) -> None:
        self._stack = ExitStack()
        self._stack.enter_context(torch.utils._python_dispatch._disable_current_modes())
        self._stack.enter_context(torch.amp.autocast("cpu", enabled=False))

    def __exit__(self, *args: Any) -> None:
        self._stack.close()


class OneStream(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators that draw random numbers run on the CPU, with the CPU's generator."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._generators: dict[int, tuple[torch.Generator, torch.Generator]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or _is_attention(func):
            return func(*args, **kwargs)
        there = self._place([*args, *kwargs.values()])
        if there is None:
            return func(*args, **kwargs)
        here_args = [self._here(value) for value in args]
        here_kwargs = {key: self._here(value) for key, value in kwargs.items()}
        result = func(*here_args, **here_kwargs)
        for former, copy in zip(
            [*args, *kwargs.values()], [*here_args, *here_kwargs.values()], strict=True
        ):
            if isinstance(former, torch.Tensor) and result is copy:  # in place, or out=
                return former.copy_(result)
        if isinstance(result, torch.Tensor):
            return result.to(there)
        return type(result)(r.to(there) if isinstance(r, torch.Tensor) else r for r in result)

    def _place(self, values: list[Any]) -> torch.device | None:
        for value in values:
            if isinstance(value, torch.Tensor) and value.device.type == self._device:
                return value.device
            if isinstance(value, torch.device) and value.type == self._device:
                return value
        return None

    def _here(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.cpu() if value.device.type == self._device else value
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, torch.Generator) and value.device.type == self._device:
            twin = torch.Generator().manual_seed(value.initial_seed())
            return self._generators.setdefault(id(value), (value, twin))[1]
        return value


def _is_attention(func: Any) -> bool:
    """Attention has other operators on each device, which the host cannot stand in for."""
    return "scaled_dot_product" in str(func) or "_fused_sdp_choice" in str(func)


# --- the process --------------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    """Run the script of `arguments` and write what it computed."""
    options, script, *rest = json.loads(arguments[0]), *arguments[1:]
    from causeway import redirect as transfer

    observed, error = Observed(options["steps"]), ""
    _seed(options["seed"])
    with ExitStack() as stack:
        if options["redirect"]:
            stack.enter_context(transfer.enable(options["target"]))
        found: dict[str, Any] = {"ledger": [], "operators": None}
        comparison = ledger = None
        if options["target"] != "cpu":
            import causeway

            device = str(torch._C._get_privateuse1_backend_name())
            if options["operators"]:
                comparison = causeway.compare(on_failure="quiet")
            else:
                stack.enter_context(OneStream(device))
                ledger = stack.enter_context(causeway.ledger())
        observed.start(stack)
        if comparison is not None:
            stack.enter_context(comparison)
        error = _run(script, rest, options["root"])
        if ledger is not None:
            found["ledger"] = json.loads(ledger.to_json())["rows"]
        if comparison is not None:
            found["operators"] = json.loads(comparison.to_json())
        found |= {
            "error": error,
            "steps": observed.steps_done,
            "losses": observed.losses,
            "gradients": observed.gradients,
            "parameters": observed.parameters,
            "outputs": observed.outputs,
            "transfer": transfer.report().to_dict(),
        }
    atomic.write(options["to"], json.dumps(_plain(found)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of a stopped program would keep the process


def _run(script: str, arguments: list[str], root: str | None) -> str:
    """The traceback of what the script raised, or ""; a module of `root` where that is given."""
    try:
        program.run(script, arguments, module=root is not None, root=root or "")
    except Enough:
        pass
    except SystemExit as stop:
        if stop.code not in (None, 0):
            return f"SystemExit: {stop.code}"
    except BaseException:
        return traceback.format_exc(limit=-8)
    return ""


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    with suppress(ImportError):
        import numpy as np

        np.random.seed(seed % 2**32)


def _plain(value: Any) -> Any:
    """JSON has no infinities and no NaN: they are written as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
