"""One side of benchmarks/ship.py, and of the files in integers of quant.py: runs the works that it
is asked for, by one of the products.

`python ship_side.py SIDE FOLDER THREADS`: says its version as a line of JSON; then for each line
"WORK CALLS" of its input, the seconds of a call, numbers in and numbers out. FOLDER has each work's
inputs and its files; what the first call gives is put there, for ship.py to compare.

`python ship_side.py load SIDE FOLDER THREADS WORK`: the seconds that a file takes to load in this
process, and those of its first run after that.
`python ship_side.py onnx SIDE FOLDER THREADS WORK ...`: writes each work as ONNX, those in integers
as onnxruntime quantizes them.

The side `file` imports no torch, and those of other products no Causeway.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[Any]]
Call = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    title: str
    network: str  # of programs.py
    shapes: tuple[tuple[int, ...], ...]
    calls: int  # a round
    bar: float  # against the fastest of the other products
    options: tuple[int, ...] = ()  # what the network's function is given
    integers: bool = False  # in int8, inputs of layers too


WORKS = {
    "mnist": Work("MNIST, batch 64", "mnist", ((64, 1, 28, 28),), 10, 0.7),
    "resnet18": Work("ResNet-18, batch 4", "resnet18", ((4, 3, 224, 224),), 2, 0.7),
    "encoder": Work("encoder of 4 layers, 2 x 128 x 384", "encoder", ((2, 128, 384),), 5, 0.7),
    "mlp": Work("MLP, batch 1", "mlp", ((1, 784),), 200, 1.0),
    "chain": Work("pointwise chain, 2 M floats", "Chain", ((2 << 20,), (2 << 20,)), 5, 1.0),
    **{
        f"linear{rows}": Work(
            f"linear 1024 x 1024, {rows} rows", "wide", ((rows, 1024),), 400 // rows or 2, 0.6,
            integers=True,
        )
        for rows in (1, 64, 256)
    },
    **{
        f"conv{channels}": Work(
            f"3 x 3 of {channels}, {size} x {size}", "three_by_three",
            ((4, channels, size, size),), 4, 0.6, (channels,), integers=True,
        )
        for channels, size in ((64, 56), (256, 14))
    },
    "resnet18int8": Work(
        "ResNet-18, batch 4", "resnet18", ((4, 3, 224, 224),), 2, 0.6, integers=True
    ),
}  # fmt: skip


def network(work: str) -> Any:
    """The network, whose weights are the same in every process."""
    import torch

    import programs

    torch.manual_seed(0)
    return getattr(programs, WORKS[work].network)(*WORKS[work].options).eval()


def inputs(folder: Path, work: str) -> Arrays:
    return [np.load(folder / f"{work}.{i}.npy") for i in range(len(WORKS[work].shapes))]


def write_onnx(folder: Path, works: list[str]) -> None:
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it says that torchvision is missing
    warnings.simplefilter("ignore")
    for work in works:
        args = tuple(map(torch.from_numpy, inputs(folder, work)))
        target = folder / f"{work}.onnx"
        torch.onnx.export(network(work), args, target, dynamo=True, external_data=False)
        if WORKS[work].integers:
            quantize_onnx(target, inputs(folder, work))


def quantize_onnx(target: Path, given: Arrays) -> None:
    """Weights in int8, a scale a channel; inputs of layers in uint8, as both runtimes advise for
    CPUs with VNNI. Calibrated by the inputs that are timed, as all sides are.
    """
    import onnx
    from onnxruntime import quantization

    class Once(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            names = [i.name for i in onnx.load(target).graph.input]
            self.left = [dict(zip(names, given, strict=True))]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    prepared = target.with_suffix(".prepared.onnx")
    quantization.shape_inference.quant_pre_process(target, prepared)
    quantization.quantize_static(
        prepared, target, Once(), per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    prepared.unlink()


# A side makes of a work a call, numbers in and numbers out, and where it has a file, loads that.


def torch_side(compiled: bool, folder: Path, work: str, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    model = network(work)
    if compiled:
        model = torch.compile(model)
    args = [torch.from_numpy(a) for a in inputs(folder, work)]

    def call() -> NDArray[Any]:
        with torch.no_grad():
            return model(*args).numpy()

    return call


def torchao_side(folder: Path, work: str, threads: int) -> Call:
    """PT2E by the quantizer for x86, compiled with frozen weights, as torchao's page for CPUs has
    it.
    """
    import torch
    import torch._inductor.config
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    args = tuple(map(torch.from_numpy, inputs(folder, work)))
    with torch.no_grad():
        exported = torch.export.export(network(work), args).module()
        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
        prepared = quantize_pt2e.prepare_pt2e(exported, quantizer)
        prepared(*args)
        compiled = torch.compile(quantize_pt2e.convert_pt2e(prepared))

    def call() -> NDArray[Any]:
        with torch.no_grad():
            return compiled(*args).numpy()

    return call


def onnxruntime_side(folder: Path, work: str, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(
        folder / f"{work}.onnx", options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    given = dict(zip(names, inputs(folder, work), strict=True))
    return lambda: session.run(None, given)[0]


def openvino_side(folder: Path, work: str, threads: int) -> Call:
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",  # as all others compute
    }
    compiled = openvino.Core().compile_model(folder / f"{work}.onnx", "CPU", settings)
    given = inputs(folder, work)
    return lambda: compiled(given)[0]


def file_side(in_place: bool, folder: Path, work: str, threads: int) -> Call:
    """`in_place`: inputs are read where they lie and outputs are looked at where the run put them,
    as in torch's own tensors; the chip's memory must be the host's too.
    """
    import causeway_run

    session = causeway_run.load(folder / f"{work}.cw").session()
    names = list(session.model.inputs)
    given = dict(zip(names, inputs(folder, work), strict=True))
    (output,) = session.model.outputs
    if not in_place:
        return lambda: session.run(given)[output]
    there = {name: session.place(name) for name in names}
    for name, array in there.items():
        array[...] = given[name]
    return lambda: session.run(there, copy=False)[output]


SIDES: dict[str, tuple[str, Callable[[Path, str, int], Call]]] = {
    "file": ("", lambda *given: file_side(False, *given)),
    "file in place": ("", lambda *given: file_side(True, *given)),
    "stock eager": ("torch", lambda *given: torch_side(False, *given)),
    "stock torch.compile": ("torch", lambda *given: torch_side(True, *given)),
    "onnxruntime": ("onnxruntime", onnxruntime_side),
    "openvino": ("openvino", openvino_side),
    "torchao": ("torchao", torchao_side),
}


def seconds(f: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        f()
    return (time.perf_counter() - start) / calls


def load(side: str, folder: Path, threads: int, work: str) -> None:
    package, make = SIDES[side]
    __import__(package or "causeway_run")
    start = time.perf_counter()
    call = make(folder, work, threads)
    loaded = time.perf_counter()
    call()
    print(json.dumps([loaded - start, time.perf_counter() - loaded]))


def serve(side: str, folder: Path, threads: int) -> None:
    package, make = SIDES[side]
    print(json.dumps({"version": version(package) if package else ""}), flush=True)
    made: dict[str, Call] = {}
    for line in sys.stdin:
        work, _, calls = line.strip().rpartition(" ")
        if work not in made:
            made.clear()  # its weights
            made[work] = make(folder, work, threads)
            np.save(folder / f"{work}.{side}.npy", made[work]())
            seconds(made[work], 5)
        made[work]()  # cores that were idle are slow at first
        print(seconds(made[work], int(calls)), flush=True)


def main() -> None:
    what, *more = sys.argv[1:]
    side, folder, threads = (what, *more[:2]) if what in SIDES else more[:3]
    # A product that counts the machine's cores has as many as the others have threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    if what == "load":
        load(side, Path(folder), int(threads), more[3])
    elif what == "onnx":
        write_onnx(Path(folder), more[3:])
    else:
        serve(side, Path(folder), int(threads))


if __name__ == "__main__":
    main()
