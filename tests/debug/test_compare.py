"""Compare: a right device has no failure, and each planted fault is named exactly."""

from __future__ import annotations

import json

import pytest
import torch

import causeway
import warm

# Faults of the simulated chip (docs/sim.md): the operator that is named, and how the failure reads.
FAULTS = {
    "unstable_sort": ("aten::sort.stable", "result 1: wrong values"),
    "one_in_10000": (
        "aten::mul.Tensor",
        r"wrong values: 2 of 20000 elements, the first at \[9999\]",
    ),
    "ignores_strides": ("aten::exp", "wrong values"),
    "out_of_bounds": ("aten::neg.out", "an input changed: .* outside of the tensor"),
    "ignores_alpha": ("aten::add.Tensor", "wrong values"),
    "narrow_sum": ("aten::sum.dim_IntList", "expected 1099511627776000, came"),
    "missing_wait": ("aten::tanh", "wrong values"),
    "half_accumulation": ("aten::mm", r"wrong values: .* \(matmul\)"),
    "loses_nan": ("aten::relu", "expected nan, came 0.0"),
    "aliasing": ("aten::addcmul_", "wrong values"),
    "mutates_input": ("aten::sigmoid", "argument self: an input changed"),
    "stale_workspace": ("aten::bmm", "wrong values"),
    "same_numbers": ("aten::uniform_", "the same numbers twice"),
    "flushes_subnormals": ("aten::abs.out", "expected .*e-.*, came 0.0"),
    "wrong_backward": ("aten::gelu_backward", "backward, Net.gelu: .*wrong values"),
    "wrong_step": ("aten::addcdiv_", "optimizer, Adam: .*wrong values"),
    "late_error": ("aten::mse_loss", "step 37, .*wrong values"),
}

SCRIPT = """
import json, sys, warnings, torch, causeway
warnings.filterwarnings("ignore")
torch.manual_seed(0)
d = torch.device("sim")
sortable = torch.randint(0, 4, (64,)).float().to(d)
long, strided = torch.rand(20000).to(d), torch.rand(30, 40).to(d).t()
wide = torch.ones(4, 1000).to(d)
half = torch.rand(8, 400).half().to(d)
odd = torch.tensor([1.0, float("nan"), 1e-40]).to(d)
batch = torch.rand(2, 8, 8).to(d)
big = torch.full((1000,), 1 << 40).to(d)
buffer = torch.zeros(64).to(d)
c = causeway.compare(".*", on_failure="quiet", folder=sys.argv[1])
with c:
    torch.sort(sortable, stable=True)
    long * long
    strided.exp()
    torch.neg(wide[0, :8], out=buffer[8:16])
    torch.add(wide, wide, alpha=3)
    big.sum()
    half @ half.t()
    torch.relu(odd)
    batch.addcmul_(batch, batch)
    torch.sigmoid(wide)
    for _ in range(2):
        torch.bmm(batch, batch)
        torch.empty(400, device=d).uniform_()
    torch.abs(odd)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.gelu = torch.nn.Linear(4, 4), torch.nn.GELU()
    def forward(self, x):
        return self.gelu(self.linear(x))

net = Net().to(d)
optimizer = torch.optim.Adam(net.parameters(), fused=False)
x = torch.rand(8, 4).to(d)
race = causeway.compare("tanh", on_failure="quiet")
with race:
    y = torch.zeros(1000, device=d)
    torch.accelerator.synchronize()
    for _ in range(60):
        y.add_(0.1)
    torch.tanh(y)
late = causeway.compare("gelu.*|addcdiv.*|mse_loss.*", on_failure="quiet")
with late:
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), x).backward()
        optimizer.step()
print(json.dumps([
    {"operator": f.operator, "words": str(f), "step": f.step, "repro": f.repro, "what": f.what,
     "no_repro": f.no_repro}
    for f in c.failures + race.failures + late.failures
]))
print(c.table(20), file=sys.stderr)
"""

VARIABLES = {"CAUSEWAY_SIM_OPS": "all", "CAUSEWAY_SIM_EXECUTION": "async",
             "CAUSEWAY_SIM_LATENCY_US": "50"}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def found(run_python, folder) -> list[dict]:
    bugs = ",".join(FAULTS)
    done = run_python(SCRIPT, args=(str(folder),), **VARIABLES, CAUSEWAY_SIM_BUG=bugs)
    return json.loads(done.stdout)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(found, fault) -> None:
    import re

    operator, words = FAULTS[fault]
    mine = [f for f in found if f["operator"] == operator]
    assert mine, sorted({f["operator"] for f in found})
    assert any(re.search(words, f["words"]) for f in mine), [f["words"] for f in mine]


def test_nothing_else_is_named(found) -> None:
    assert {f["operator"] for f in found} == {operator for operator, _ in FAULTS.values()}


def test_an_error_of_one_step_is_named_with_that_step_alone(found) -> None:
    assert [f["step"] for f in found if f["operator"] == "aten::mse_loss"] == [37]


@pytest.mark.parametrize("operator", ["aten::relu", "aten::addcmul_"])
def test_a_repro_script_shows_the_failure_again_and_passes_on_a_right_chip(
    found, folder, operator
) -> None:
    import os

    (first, *_) = [f for f in found if f["operator"] == operator and f["repro"]]
    script = f"{first['repro']}/script.py"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CAUSEWAY_")}
    clean |= {"CAUSEWAY_SIM_OPS": "all"}
    for bugs, status in ((",".join(FAULTS), 1), ("", 0)):
        done = warm.run([script], env=clean | {"CAUSEWAY_SIM_BUG": bugs}, timeout=120)
        assert done.returncode == status, done.stdout + done.stderr
        assert operator.split("::")[1] in done.stdout


def test_a_right_chip_has_no_failure(run_python, tmp_path) -> None:
    done = run_python(SCRIPT, args=(str(tmp_path),), **VARIABLES)
    assert json.loads(done.stdout) == []


# --- in this process ------------------------------------------------------------------------------


@pytest.fixture
def net(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Dropout(0.5),
        torch.nn.Linear(72, 4),
    ).to(device)  # fmt: skip


def train(net, device, steps: int = 2) -> None:
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.ones(2, 1, 8, 8, device=device)
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def test_a_training_step_is_compared_as_a_whole(net, device) -> None:
    with causeway.compare() as c:
        train(net, device)
    assert c.failures == []
    phases = {phase for row in c.rows for phase in row.phases}
    assert phases == {"forward", "backward", "optimizer"}
    names = {row.operator for row in c.rows}
    assert {"aten::convolution_backward", "aten::native_dropout"} <= names
    assert all(row.compared == row.calls for row in c.rows), [
        (r.operator, r.not_compared) for r in c.rows if r.compared != r.calls
    ]
    (dropout,) = [r for r in c.rows if r.operator == "aten::native_dropout"]
    assert dropout.references == {"replay": 2}


def test_steps_and_every_choose_calls(net, device) -> None:
    with causeway.compare("convolution", steps=(2, 3)) as c:
        train(net, device, 4)
    assert sum(row.calls for row in c.rows) == 2
    with causeway.compare("convolution", every=3) as c:
        train(net, device, 4)
    assert sum(row.calls for row in c.rows) == 2


def test_the_results_are_given_as_table_and_json(net, device) -> None:
    with causeway.compare("add.*|mm") as c:
        train(net, device)
    data = json.loads(c.to_json())
    assert data["version"] == 1
    assert data["failures"] == []
    assert {"operator", "signature", "calls", "max_ulp", "diff1", "diff2", "cosine"} <= set(
        data["rows"][0]
    )
    assert "0 wrong" in c.table()


def test_a_tolerance_of_the_user_holds(device) -> None:
    a = torch.rand(3, device=device)
    with causeway.compare("exp", rtol=0.0, reference="float64", on_failure="quiet") as c:
        a.exp()
    assert c.failures  # float32 is not float64
    with causeway.compare("exp", rtol=1e-5, reference="float64") as c:
        a.exp()
    assert not c.failures


def test_what_the_cpu_cannot_run_is_listed_with_its_reason(device) -> None:
    cell = torch.nn.LSTMCell(3, 4).to(device)
    with causeway.compare("_thnn_fused_lstm_cell") as c:
        cell(torch.ones(1, 3, device=device))
    (row,) = c.rows
    assert row.compared == 0
    assert any("the CPU does not take the call" in reason for reason in row.not_compared)
    assert "not compared: _thnn_fused_lstm_cell" in c.table()


def test_undefined_memory_is_no_failure(device) -> None:
    with causeway.compare() as c:
        torch.empty(100, device=device)
        torch.empty(3, device=device).resize_(1000)
    assert c.failures == []


def test_views_of_one_storage_stay_views_of_one(device) -> None:
    a = torch.arange(12.0, device=device)
    with causeway.compare() as c:
        torch.add(a[:6], a[6:], out=a[3:9].clone())
        a[2:6].mul_(a[6:10])
        torch._foreach_add_([a[:3], a[3:6]], 1.0)
        a.view(3, 4).t().contiguous().select(0, 1).add_(1)
    assert c.failures == []
    assert all(row.compared == row.calls for row in c.rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_held_against_float64(device, dtype) -> None:
    a = torch.rand(16, 16).to(device, dtype)
    with causeway.compare("mm", reference="float64") as c:
        a @ a
    assert not c.failures
    assert c.rows[0].references == {"float64": 1}


def test_compare_can_raise_in_the_operators_caller(device, monkeypatch) -> None:
    from causeway import numerics
    from causeway.comparison import judge

    wrong = judge.Judged(numerics.Verdict("wrong values", came="1", expected="2"))
    monkeypatch.setattr(judge.Judge, "tensor", lambda *_: wrong)
    a = torch.ones(2, device=device)
    with (
        pytest.raises(causeway.CompareError, match=r"aten::add\.Tensor"),
        causeway.compare("add.*", on_failure="raise"),
    ):
        a + a
    assert (a + a).tolist() == [2, 2]


def test_sparse_results_are_compared(device) -> None:
    s = torch.eye(3).to_sparse().to(device)
    with causeway.compare(on_failure="quiet") as c:
        s @ torch.ones(3, 3, device=device)
        (s + s).coalesce()
    assert c.failures == []


def test_a_mistaken_option_raises() -> None:
    with pytest.raises(ValueError, match="reference"):
        causeway.compare("mm", reference="float32")
    with pytest.raises(ValueError, match="steps"):
        causeway.compare("mm", steps=(3, 2))
    with pytest.raises(causeway.ConfigError), causeway.compare("no_such_operator"):
        pass


def test_the_environment_switches_it_on_and_prints_a_table_at_exit(run_python, tmp_path) -> None:
    done = run_python(
        "import torch; torch.relu(torch.tensor([float('nan')], device='sim'))",
        CAUSEWAY_COMPARE="relu|exp", CAUSEWAY_SIM_BUG="loses_nan", CAUSEWAY_SIM_OPS="all",
        CAUSEWAY_COMPARE_FOLDER=str(tmp_path / "out"),
    )  # fmt: skip
    assert "causeway compare: step 1, forward, no module: aten::relu on rung" in done.stderr
    assert "operators compared with the CPU" in done.stderr
    assert "1 wrong" in done.stderr
    (line,) = (tmp_path / "out" / "failures.jsonl").read_text().splitlines()
    assert json.loads(line)["kind"] == "values"
