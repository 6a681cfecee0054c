"""Where a graph of the device goes: to Inductor, or by the ladder where nothing can be fused.

`around` stands around torch's `compile_fx`, which compiles what `torch.compile` gives to its
default backend. Graphs of other devices pass through it untouched.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from causeway import _C, config
from causeway.compile import chip, names, report
from causeway.errors import CausewayError

# Inductor's settings for graphs of the device; what a user gives in `options` goes before them.
SETTINGS: dict[str, Any] = {
    # It would copy images and weights into channels-last for each convolution, which the ladder's
    # kernels gain nothing from: ResNet-18 took 1.24 of eager's time.
    "layout_optimization": False,
    # It would cut a graph at what CUDA's graphs cannot hold; replay.py takes graphs whole.
    "graph_partition": False,
}

# Settings of other compilers' code, but for those that `mode` sets, and what they are for.
_OTHERS = ("triton.", "cpp.", "cuda.", "cutlass.", "rocm.", "xpu.", "mtia.", "halide.")
_NO_EFFECT = {
    "cpp_wrapper": "the kernels of a graph are called from Python",
    "fx_wrapper": "the kernels of a graph are called from Python",
    "combo_kernels": "each kernel is launched by itself",
    "cpu_backend": "the kernels are Causeway's",
    "cuda_backend": "the kernels are Causeway's",
    "xpu_backend": "the kernels are Causeway's",
    "max_autotune_gemm_backends": "products are tuned by the device, `causeway tune`",
    "max_autotune_conv_backends": "products are tuned by the device, `causeway tune`",
    "use_fast_math": "the vendor's compiler is given no such option",
}
_BY_MODES = {"triton.cudagraphs", "triton.reorder_for_reducing_graph_partitions"}
# What would choose another writer of the calls, or kernels of a form that the device's are not:
# Inductor reads these of Triton's options wherever kernels have loops.
_OFF = (
    *("cpp_wrapper", "fx_wrapper", "combo_kernels"),
    *("triton.tile_reductions", "triton.prefer_nd_tiling", "triton.native_matmul"),
)
_said: set[str] = set()

# Given settings, compile_fx calls itself without them.
_inside = ContextVar("_inside", default=False)


def around(compile_fx: Callable[..., Any]) -> Callable[..., Any]:
    """`compile_fx`, for graphs of the device too."""

    @functools.wraps(compile_fx)
    def compile_graph(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            _inside.get()
            or not isinstance(model_, torch.fx.GraphModule)
            or not _is_ours(model_, example_inputs_)
        ):
            return compile_fx(model_, example_inputs_, *args, **kwargs)
        if names.V.aot_compilation:
            raise CausewayError(
                f"AOTInductor has no code for {chip.device_name()!r}: it makes C++ that calls "
                "kernels of CUDA, XPU or the CPU. `causeway.export` writes a model for the "
                "device into one file that runs without Python (docs/ship.md), and "
                "torch.compiler.save_cache_artifacts() keeps compiled graphs for other processes"
            )
        mode = config.get("compile")
        why = "CAUSEWAY_COMPILE=ladder" if mode == "ladder" else cannot_fuse()
        if why:
            return _by_the_ladder(model_, example_inputs_, why)
        given = kwargs.get("config_patches") or {}
        say_no_effect(given)
        kwargs["config_patches"] = SETTINGS | given | dict.fromkeys(_OFF, False)
        if mode == "check":  # what was kept of a graph has no checks
            kwargs["config_patches"]["force_disable_caches"] = True
        token = _inside.set(True)
        try:
            return compile_fx(model_, example_inputs_, *args, **kwargs)
        except Exception as error:
            if mode == "strict" or not _is_generators(error):
                raise
            return _by_the_ladder(model_, example_inputs_, _line(error))
        finally:
            _inside.reset(token)

    return compile_graph


def say_no_effect(given: dict[str, Any]) -> None:
    """Warn, once each, of settings that change nothing for graphs of the device."""
    from torch._inductor import config as settings

    wanted = dict(given)
    for name in _OFF:  # which the environment sets too
        wanted.setdefault(name, functools.reduce(getattr, name.split("."), settings))
    for name, value in wanted.items():
        why = _NO_EFFECT.get(name, "")
        if name == "coordinate_descent_tuning" and not wanted.get("max_autotune"):
            why = "it searches for Triton's block sizes"
        elif name.startswith(_OTHERS) and name not in _BY_MODES:
            why = "it is for the code of another compiler"
        if why and value not in (False, None) and name not in _said:
            _said.add(name)
            warnings.warn(
                f"causeway: torch.compile's option {name!r} has no effect on graphs on "
                f"{chip.device_name()!r}: {why} (docs/compile.md)",
                stacklevel=4,
            )


def cannot_fuse() -> str:
    """Why no graph can be fused on this device with this torch, or ""."""
    if "code.v1" not in _C.vendor_state().get("extensions", ()):
        return "the vendor offers no compiler (code.v1)"
    if moved := names.missing():
        return f"torch {torch.__version__} has no {moved}, which the generator of kernels uses"
    return ""


def _by_the_ladder(model: Any, inputs: Any, why: str) -> Any:
    if report.unfused(why):
        warnings.warn(
            f"causeway: torch.compile fuses nothing in a graph on {chip.device_name()!r}: {why}. "
            "Its operators run by the ladder, one after the other (docs/compile.md)",
            stacklevel=4,
        )
    from torch._dynamo.backends.debugging import aot_eager

    return aot_eager(model, inputs)


def _is_ours(model: torch.fx.GraphModule, inputs: Any) -> bool:
    """Whether a graph has tensors of the device."""
    name = chip.device_name()

    def on_device(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == name

    if any(on_device(value) for value in inputs or ()):
        return True
    if any(on_device(value) for value in (*model.parameters(), *model.buffers())):
        return True
    for node in model.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if any(on_device(one) for one in (value if isinstance(value, (tuple, list)) else [value])):
            return True
    return False


def _is_generators(error: BaseException) -> bool:
    """Whether an error is of writing or building kernels: then the operators still run."""
    from torch._inductor.exc import InductorError

    return isinstance(error, (InductorError, NotImplementedError, LookupError))


def _line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__
