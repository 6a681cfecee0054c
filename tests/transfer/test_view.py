"""One consistent view, and the rest of torch goes on working while CUDA is redirected."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import pickle
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn

from causeway import transfer
from causeway.errors import CausewayError, ConfigError


@pytest.fixture
def on() -> Iterator[None]:
    with transfer.enable():
        yield


def test_all_ways_to_ask_agree(on: None) -> None:
    x = torch.ones(2).cuda()
    assert torch.cuda.is_available()
    assert x.is_cuda
    assert x.device.type == "cuda"
    assert x.device == torch.device("cuda:0")
    assert str(x.device) == "cuda:0"
    assert isinstance(x, torch.cuda.FloatTensor)
    assert x.type() == "torch.cuda.FloatTensor"
    assert x.untyped_storage().device == x.device
    assert torch.zeros_like(x).device == x.device
    assert torch.empty(1, device=x.device).device == x.device
    with torch.autocast(device_type=x.device.type, dtype=torch.float16):
        assert (x @ x).dtype is torch.float16
    assert not x.cpu().is_cuda
    assert x.cpu().device.type == "cpu"


def test_it_holds_in_every_thread(on: None) -> None:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(1, device="cuda").is_cuda))
    thread.start()
    thread.join()
    assert found == [True]


def test_devices_are_plain_values(on: None) -> None:
    device = torch.device("cuda:1")
    assert type(device) is torch.device
    assert isinstance(device, torch.device)
    assert pickle.loads(pickle.dumps(device)) == device
    assert copy.deepcopy(device) == device
    assert {device: 1}[torch.device("cuda", 1)] == 1


def test_tensors_and_modules_are_copied_and_pickled(on: None) -> None:
    model = nn.Linear(2, 2).cuda()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.weight.device == model.weight.device
        assert torch.equal(twin.weight, model.weight)


@pytest.mark.parametrize("where", [0, "cuda", "cuda:0", torch.device("cuda", 0)])
def test_every_spelling_of_a_device_is_taken(where: Any, on: None) -> None:
    x = torch.ones(2)
    assert x.to(where).is_cuda
    assert x.cuda(where).is_cuda
    assert nn.Linear(1, 1).cuda(where).weight.is_cuda
    assert nn.Linear(1, 1).to(where).weight.is_cuda
    assert torch.cuda.memory_allocated(where) >= 0
    torch.cuda.synchronize(where)
    with torch.cuda.device(where):
        assert torch.cuda.current_device() == 0


def test_default_devices_and_types(on: None) -> None:
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
    try:
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        assert torch.ones(2).is_cuda
        assert torch.get_default_device().type == "cuda"
        torch.set_default_tensor_type(torch.FloatTensor)
        assert not torch.ones(2).is_cuda
    finally:
        torch.set_default_device(None)


def test_a_wrong_device_is_an_error_as_before(on: None) -> None:
    with pytest.raises(RuntimeError, match="cuda device"):
        torch.ones(1).cuda("cpu")
    with pytest.raises(TypeError):
        torch.ones(1, device=["cuda"])
    with pytest.raises(RuntimeError):
        torch.ones(1, device="cuda:40")


HOLDERS = """
import functools, torch
from torch import zeros as make
from torch.cuda import is_available, Stream
def default(f=torch.ones, *, g=torch.rand): return f(1, device='cuda') + g(1, device='cuda')
def outer():
    made = torch.full
    return lambda: made((1,), 1.0, device='cuda')
closure = outer()
part = functools.partial(torch.full, (1,), 1.0)
late = functools.partial(lambda f: f(1, device='cuda'), torch.eye)
class Holder:
    maker = torch.rand
    table = {'a': torch.arange}
    def __init__(self): self.own = torch.randn
holder = Holder()
rows = [torch.zeros]
fixed = (torch.eye,)
"""


@pytest.fixture
def held() -> Iterator[dict[str, Any]]:
    """The names of a program that took functions of torch in every way."""
    module = types.ModuleType("transfer_program")
    sys.modules[module.__name__] = module
    exec(HOLDERS, vars(module))
    yield vars(module)
    del sys.modules[module.__name__]


def contents(names: dict[str, Any]) -> list[Any]:
    holder = names["holder"]
    return [
        names["make"], names["is_available"], names["Stream"], names["default"].__defaults__,
        names["default"].__kwdefaults__["g"], names["closure"].__closure__[0].cell_contents,
        names["part"].func, names["part"].args, names["late"].args[0], vars(type(holder))["maker"],
        holder.table["a"], holder.own, names["rows"][0],
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["device", "cpu"])
def test_names_bound_before_are_replaced_and_restored(target: str, held: dict[str, Any]) -> None:
    before = contents(held)
    holder = held["holder"]
    with transfer.enable(target):
        made = [
            held["make"](1, device="cuda"), held["default"](), held["closure"](),
            held["part"](device="cuda"), held["late"](), holder.maker(1, device="cuda"),
            holder.table["a"](2, device="cuda"), holder.own(2, device="cuda"),
            held["rows"][0](1, device="cuda"),
        ]  # fmt: skip
        assert all(x.is_cuda for x in made)
        assert held["is_available"]()
        assert held["Stream"] is torch.cuda.Stream
        exec("def later(f=torch.ones): return f", held)
        assert transfer.report().unfixed == ["torch.eye, in transfer_program.fixed"]
    for now, former in zip(contents(held), before, strict=True):
        assert now is former or (type(now) is tuple and now == former)
    assert held["later"]() is torch.ones


def test_a_holder_that_a_program_changed_meanwhile_stays(held: dict[str, Any]) -> None:
    with transfer.enable():
        held["holder"].own = held["rows"][0] = torch.eye
        held["part"].__setstate__((torch.ones, (3,), {}, {}))
    assert held["holder"].own is held["rows"][0] is torch.eye
    assert held["part"].args == (3,)


def test_the_report_says_what_was_called_where_and_how_often(on: None, tmp_path: Path) -> None:
    program = tmp_path / "cuda.py"
    text = (
        "import torch\n"
        "for _ in range(3):\n"
        "    x = torch.ones(2, device='cuda')\n"
        "model = torch.nn.Linear(2, 2).cuda()\n"
        "y = torch.ones(2, device='cpu')\n"
    )
    transfer.report(clear=True)
    exec(compile(text, str(program), "exec"), {"__name__": "cuda_program"})
    report = transfer.report()
    calls = {(p.api, p.line): p.calls for p in report.places if p.file == str(program)}
    assert calls == {("torch.ones", 3): 3, ("torch.Tensor.cuda", 4): 2}
    assert json.loads(report.to_json())["places"][0].keys() == {
        "api", "file", "line", "calls", "to"
    }  # fmt: skip
    assert "cuda.py:3" in str(report)


def test_enable_twice_is_once_and_another_target_is_refused(on: None) -> None:
    with transfer.enable():
        pass
    assert transfer.enabled()  # the inner one ended nothing
    with pytest.raises(CausewayError, match="already"):
        transfer.enable("cpu")


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="npu"):
        transfer.enable("npu")
    assert not transfer.enabled()


def test_the_end_of_the_block_ends_it_after_an_exception() -> None:
    with pytest.raises(KeyError), transfer.enable():
        raise KeyError
    assert not torch.cuda.is_available()


# --- jit, the compiler, warnings, signatures ------------------------------------------------------


def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(2) + torch.ones_like(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_script_and_trace_work_before_during_and_after() -> None:
    x = torch.ones(2)
    for target in ("device", "", "cpu", ""):
        if target:
            transfer.enable(target)
        try:
            assert torch.equal(torch.jit.script(scripted)(x), x * 2)
            assert torch.equal(torch.jit.trace(scripted, x)(x), x * 2)
        finally:
            transfer.disable()


def cuda_inside(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    y = torch.zeros(2, device="cuda") + x.to("cuda:0") + x.to(torch.device("cuda"))
    if x.is_cuda and x.device.type == "cuda":
        y = y + x.cuda()
        if x.device == torch.device("cuda:0"):
            y = y + 1
    return y, x.device.type


class Scripted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.moved(x) + torch.ones(2, device="cuda")

    @torch.jit.export
    def moved(self, x: torch.Tensor) -> torch.Tensor:
        return x.cuda()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("target", ["device", "cpu"])
def test_scripted_code_makes_tensors_on_the_target_and_sees_cuda(
    target: str, tmp_path: Path
) -> None:
    path = tmp_path / "scripted.pt"
    torch.jit.save(torch.jit.script(Scripted()), path)
    with transfer.enable(target):
        x = torch.ones(2, device="cuda")
        for _ in range(2):  # compiled, and found again
            y, kind = torch.jit.script(cuda_inside)(x)
            assert y.is_cuda
            assert kind == "cuda"
            assert y.tolist() == [4.0, 4.0]
        for module in (torch.jit.script(Scripted()), torch.jit.load(path)):
            assert module(torch.ones(2)).is_cuda
        if target != "cpu":
            assert torch.jit.script(cuda_inside)(x.cpu())[1] == "cpu"


COMPILED = """
import torch
import causeway

def step(x):
    assert x.is_cuda and x.device.type == "cuda"
    return (x.to(torch.ones(2, device="cuda").device).sin() + 1) * torch.zeros(2).cuda().cos()

x = torch.ones(2).cuda()
for mode in (None, "default", "reduce-overhead", "max-autotune"):
    torch._dynamo.reset()
    compiled = torch.compile(step, mode=mode, fullgraph=True)
    y = compiled(x)
    torch.testing.assert_close(y, step(x))
    compiled(x)
print(causeway.compile_report())
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 1)).cuda()
compiled, data = torch.compile(model), torch.randn(3, 4, device="cuda")
for net in (model, compiled):
    net(data).square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    before = grads if net is model else before
for one, other in zip(before, grads):
    torch.testing.assert_close(one, other)
print(causeway.compile_report())
"""


@pytest.mark.parametrize("code", ["0", "1"])
def test_compiled_programs_are_fused_where_the_vendor_has_a_compiler(run_python, code: str) -> None:
    said = run_python(COMPILED, CAUSEWAY_SIM_CODE=code, CAUSEWAY_TRANSFER="device").stdout
    assert ("fused_" in said) == (code == "1")
    assert ("replay" in said) == (code == "1")  # of mode="reduce-overhead"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_sees_the_same_view(backend: str) -> None:
    torch._dynamo.reset()

    def step(x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cuda" and x.is_cuda and torch.cuda.is_available():
            y = torch.zeros(2, device=x.device) + torch.ones(2, device="cuda")
            return x + y.to("cuda") + torch.arange(2).cuda()
        return x - 1

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    with transfer.enable():
        x = torch.ones(2, device="cuda")
        assert compiled(x).tolist() == [2.0, 3.0]
        assert compiled(x.cpu()).tolist() == [0.0, 0.0]
        torch._dynamo.reset()  # looks for NVIDIA's parts where there is CUDA
    assert compiled(torch.ones(2)).tolist() == [0.0, 0.0]


def test_a_compiled_training_step_gives_the_eager_gradients(on: None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).cuda()
    x = torch.randn(3, 4, device="cuda")
    model(x).sum().backward()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    torch.compile(model, backend="aot_eager")(x).sum().backward()
    for p, grad in zip(model.parameters(), grads, strict=True):
        torch.testing.assert_close(p.grad, grad)


def test_warning_filters_are_as_they_were() -> None:
    before = list(warnings.filters)
    with transfer.enable():
        assert list(warnings.filters) == before
    assert list(warnings.filters) == before


def test_a_warning_of_torch_is_filed_under_the_programs_line(on: None, tmp_path: Path) -> None:
    program = tmp_path / "cuda.py"
    text = "import torch\nx = torch.ones(1)\ntorch.tensor(x)\ntorch.tensor(x, device='cuda')\n"
    program.write_text(text)
    code = compile(text, str(program), "exec")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", module="cuda_warns")
        exec(code, {"__name__": "cuda_warns"})
    assert [(w.filename, w.lineno) for w in found] == [(str(program), 3), (str(program), 4)]


def test_an_exception_of_torch_shows_the_programs_line_and_no_other(on: None) -> None:
    with pytest.raises(RuntimeError) as failure:
        torch.zeros(-1, device="cuda")
    assert len(failure.traceback) == 1


def test_functions_keep_their_metadata(on: None) -> None:
    assert torch.zeros.__name__ == "zeros"
    assert torch.zeros.__doc__ == torch._C._VariableFunctions.zeros.__doc__
    assert next(iter(inspect.signature(torch.random.fork_rng).parameters)) == "devices"
    assert functools.wraps(torch.zeros)(lambda: None).__name__ == "zeros"
    assert issubclass(torch.cuda.Stream, torch.Stream)
    assert isinstance(torch.Generator("cuda"), torch.Generator)

    class Mine(torch.Generator):
        pass

    assert isinstance(Mine(), torch.Generator)


def test_modules_with_lazy_parameters_are_moved_before_they_have_a_shape(on: None) -> None:
    moves = (lambda m: m.cuda(), lambda m: m.to("cuda"), lambda m: m.cuda(0).half().float())
    for move in moves:
        module = move(torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d()))
        assert module[0].weight.is_cuda
        assert module(torch.randn(3, 2, device="cuda")).is_cuda
        assert module[0].weight.is_cuda
        assert module[0].weight.shape == (4, 2)


def test_subclasses_with_torch_function_go_on_working(on: None) -> None:
    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2).as_subclass(Logged).to("cuda")
    assert type(x) is Logged
    assert x.is_cuda
    assert x.device.type == "cuda"
    assert torch.add(x, 1).device.type == "cuda"


def test_checkpoints_of_cuda_are_read_and_written(on: None, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(2, device="cuda")}, path)
    assert b"cuda:0" in path.read_bytes()
    assert torch.load(path)["w"].is_cuda
    assert not torch.load(path, map_location="cpu")["w"].is_cuda
    assert torch.load(path, map_location={"cuda:0": "cuda:0"}, weights_only=True)["w"].is_cuda
    transfer.disable()
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path)
    assert torch.load(path, map_location="cpu")["w"].tolist() == [1.0, 1.0]


def test_a_graph_is_replayed_on_new_inputs_into_the_same_outputs(on: None) -> None:
    model, x = nn.Linear(2, 2).cuda(), torch.ones(1, 2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = model(x).relu()
    place = y.data_ptr()
    x.copy_(torch.full((1, 2), 3.0))
    graph.replay()
    assert y.data_ptr() == place
    with torch.no_grad():
        torch.testing.assert_close(y, model(x).relu())


def test_where_the_vendor_has_a_compiler_graphs_are_the_devices(run_python) -> None:
    program = """
import torch
from causeway import transfer
transfer.enable()
x = torch.ones(4, device="cuda")
_ = x * 2
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
    y = x * 2
assert len(graph) == 1 and type(graph).__module__ == "causeway.device.graphs"
x.fill_(5)
graph.replay()
assert y.tolist() == [10.0] * 4
net = torch.cuda.make_graphed_callables(torch.nn.Linear(4, 2).cuda(), (x,))
net(x).sum().backward()
"""
    run_python(program, CAUSEWAY_SIM_CODE="1")


def test_what_is_dropped_is_said(on: None) -> None:
    with pytest.warns(UserWarning, match="no effect"):
        torch.cuda.set_sync_debug_mode("warn")
    torch.cuda.set_sync_debug_mode("default")


def test_a_profile_of_cudas_activity_is_the_devices(on: None, capfd: Any) -> None:
    from torch.profiler import ProfilerActivity, profile, supported_activities

    assert ProfilerActivity.CUDA in supported_activities()
    x = torch.randn(512, 512, device="cuda")
    for activities in (
        [ProfilerActivity.CPU, ProfilerActivity.CUDA],
        [ProfilerActivity.CPU, {ProfilerActivity.CUDA: ["GPU_MEMCPY", "CONCURRENT_KERNEL"]}],
        supported_activities(),
    ):
        with profile(activities=activities) as run:
            x.clone().add(1)
        assert run.activities == {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}
        assert sum(event.self_device_time_total for event in run.key_averages()) > 0
        assert "aten::clone" in run.key_averages().table(sort_by="cuda_time_total")
    with torch.autograd.profiler.profile(use_device="cuda") as events:
        x.clone()
    assert events.use_device == transfer.enabled()
    assert sum(event.self_device_time_total for event in events.key_averages()) > 0
    # torch's own way for CUDA's events writes an error for each operator.
    assert "Failed to record" not in capfd.readouterr().err


def test_emit_nvtx_says_that_it_sends_nothing(on: None) -> None:
    with (
        pytest.warns(UserWarning, match="no ranges are sent"),
        torch.autograd.profiler.emit_nvtx(),
    ):
        assert torch.ones(2, device="cuda").sum().item() == 2


def test_the_history_of_memory_is_the_devices(on: None, tmp_path: Path) -> None:
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        kept = torch.empty(1000, device="cuda")
        (trace,) = torch.cuda.memory._snapshot()["device_traces"][:1]
        assert "alloc" in [event["action"] for event in trace]
        torch.cuda.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    found = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert sum(segment["allocated_size"] for segment in found["segments"]) >= 4 * kept.numel()
