"""The vendor of Huawei's NPUs on the stand-in for CANN's libraries. It shows that calls fit the
public signatures and that results are the CPU's where operators are what their documentation says.
It shows nothing of a chip.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = str(HERE / "programs.py")
CAUSEWAY = "import sys; from causeway.cli import app; app(sys.argv[1:])"
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once, pytest.mark.slow]


@pytest.mark.parametrize("name", ["digits", "gpt", "lstm"])
def test_a_network_trains_to_the_cpus_losses(on_ascend: Run, name: str) -> None:
    said = json.loads(on_ascend(PROGRAMS, name).stdout.splitlines()[-1])
    assert said["ascend"] == pytest.approx(said["cpu"], rel=1e-4)
    assert said["native"] + said["derived"] > 50


def test_attention_and_its_gradient_are_one_kernel_each(on_ascend: Run) -> None:
    rungs = json.loads(on_ascend(PROGRAMS, "attention").stdout.splitlines()[-1])
    fused = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert rungs == {fused: ["native"], f"{fused}_backward": ["native"]}


def test_a_layer_of_an_lstm_is_one_kernel_each_way(on_ascend: Run) -> None:
    rungs = json.loads(on_ascend(PROGRAMS, "layers").stdout.splitlines()[-1])
    # Derived is native behind a copy, of a gradient that was expanded.
    assert rungs == {
        "causeway::lstm_layer": ["native"],
        "causeway::lstm_layer_backward": ["derived", "native"],
    }


def test_a_number_on_either_side_is_the_cpus(on_ascend: Run) -> None:
    assert on_ascend(PROGRAMS, "numbers").stdout.endswith("equal\n")


@pytest.mark.parametrize("chip", ["Ascend910B1", "Ascend950PR_9599"])
def test_the_saved_values_of_a_batch_norm_are_torchs_on_each_chip(
    on_ascend: Run, chip: str
) -> None:
    said = json.loads(
        on_ascend(PROGRAMS, "batch_norm", ASCEND_STAND_IN_SOC=chip).stdout.splitlines()[-1]
    )
    assert said["rungs"] == ["derived", "native"]  # by the form with out=, and by itself


@pytest.mark.parametrize("chip", ["Ascend910B1", "Ascend950PR_9599"])
@pytest.mark.parametrize("program", ["narrow_batch_norm", "log_sigmoid", "nearest"])
def test_what_aclnn_has_otherwise_is_torchs_all_the_same(
    on_ascend: Run, program: str, chip: str
) -> None:
    on_ascend(PROGRAMS, program, ASCEND_STAND_IN_SOC=chip)


def calls(path: Path) -> dict[str, int]:
    """How often each function of the stand-in was called."""
    return {name: int(n) for n, name in map(str.split, path.read_text().splitlines())}


def test_a_call_that_comes_again_runs_the_executor_of_before(
    on_ascend: Run, tmp_path: Path
) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    assert on_ascend(PROGRAMS, "kept", **log).stdout.endswith("equal\n")
    kept = calls(tmp_path / "calls")
    assert kept["aclnnMm"] == 12
    assert kept["aclnnMmGetWorkspaceSize"] == 2  # the first, and the one that is kept
    assert kept["aclnnAddGetWorkspaceSize"] == 6  # two of each kind: x + x, x + w, x + 2 w
    assert kept["aclSetTensorAddr"] > 10
    assert kept["aclnnExpGetWorkspaceSize"] == 12  # not at a multiple of 32 bytes: made anew


def test_calls_with_memory_that_is_lent_are_kept_too(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    assert on_ascend(PROGRAMS, "kept_lent", **log).stdout.endswith("equal\n")
    called = calls(tmp_path / "calls")
    # The first, and the one that is kept, wherever inputs, results and what is lent lie.
    for name in (
        "FlashAttentionScore", "FlashAttentionScoreGrad", "LSTM", "LstmBackward",
        "BatchNorm", "BatchNormBackward", "ForeachMulList",
    ):  # fmt: skip
        assert called[f"aclnn{name}"] == 12, name
        assert called[f"aclnn{name}GetWorkspaceSize"] == 2, name


def test_weights_are_kept_in_the_chips_format(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    said = json.loads(on_ascend(PROGRAMS, "formats", **log).stdout.splitlines()[-1])
    called = calls(tmp_path / "calls")
    # Three weights of each of three kinds, and two of each again after they were written to.
    assert said["converted"] == called["aclnnNpuFormatCast"] == 15
    # Each conversion serves the call that asked for it too.
    products = called["aclnnMatmulWeightNz"] + called["aclnnAddmmWeightNz"]
    assert products == said["used"] + said["converted"]
    # Weights of one shape share an executor, wherever their forms are.
    assert called["aclnnMatmulWeightNzGetWorkspaceSize"] < called["aclnnMatmulWeightNz"]


@pytest.mark.parametrize("operator", ["NpuFormatCast", "MatmulWeightNz", "AddmmWeightNz"])
def test_a_wrong_format_is_found(on_ascend: Run, operator: str) -> None:
    with pytest.raises(AssertionError, match="not close"):
        on_ascend(PROGRAMS, "formats", ASCEND_STAND_IN_WRONG=f"aclnn{operator}")


@pytest.mark.parametrize("fault", ["aclnnNpuFormatCastGetWorkspaceSize:1=361001"])
def test_what_the_chip_does_not_convert_is_computed_as_it_lies(on_ascend: Run, fault: str) -> None:
    on_ascend(PROGRAMS, "formats", ASCEND_STAND_IN_FAULT=fault)


def test_doctor_says_why_a_chip_has_no_format(on_ascend: Run) -> None:
    code = "from causeway import _C; import torch; print(_C.vendor_notes(), _C.layout_names())"
    assert "['fractal_nz']" in on_ascend("-c", code).stdout
    said = on_ascend("-c", code, ASCEND_STAND_IN_SOC="Ascend310P3").stdout
    assert "not kept in FRACTAL_NZ" in said
    assert "this is Ascend310P3" in said
    assert said.endswith("[]\n")


def test_float32_has_fewer_bits_only_where_torch_allows_it(on_ascend: Run) -> None:
    said = json.loads(on_ascend(PROGRAMS, "fewer_bits", ASCEND_STAND_IN_HF32="1").stdout)
    full, fewer = said[:3] + said[6:], said[3:6]
    assert all(error < 1e-6 for errors in full for error in errors), said
    assert all(1e-5 < error < 1e-2 for errors in fewer for error in errors), said


def test_determinism_is_asked_of_the_chip(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    said = on_ascend(PROGRAMS, "determinism", **log)
    assert json.loads(said.stdout) == [0, 1, 1, 0]
    assert calls(tmp_path / "calls")["aclrtSetSysParamOpt"] == 2


OVERFLOW = """
import torch
from causeway import _C
x = torch.tensor([60000.0, -60000.0, 1.0], dtype=torch.half, device="ascend")
large = x + x
print((large).tolist(), (large - large).tolist(), "GradScaler" in _C.vendor_notes())
w = torch.ones(3, device="ascend", requires_grad=True)
scaler = torch.amp.GradScaler("ascend", init_scale=4.0)
optimizer = torch.optim.SGD([w], 1.0)
scaler.scale((large * w.half()).float().sum()).backward()
scaler.step(optimizer), scaler.update()
print(scaler.get_scale())
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ["[inf, -inf, 2.0] [nan, nan, 0.0] False", "2.0"]),
        (
            {"INF_NAN_MODE_FORCE_DISABLE": "1"},
            ["[65504.0, -65504.0, 2.0] [0.0, 0.0, 0.0] True", "4.0"],
        ),
        (
            {"ASCEND_STAND_IN_SOC": "Ascend910A"},
            ["[65504.0, -65504.0, 2.0] [0.0, 0.0, 0.0] True", "4.0"],
        ),
    ],
    ids=["infinities", "asked to saturate", "first chips"],
)
def test_what_is_too_large_is_an_infinity_where_the_chip_has_them(
    on_ascend: Run, given: dict[str, str], said: list[str]
) -> None:
    assert on_ascend("-c", OVERFLOW, **given).stdout.splitlines() == said


def test_a_loss_without_weights_is_kept_with_ones_that_stay(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    assert on_ascend(PROGRAMS, "kept_losses", **log).stdout.endswith("equal\n")
    called = calls(tmp_path / "calls")
    assert called["aclmdlRIExecuteAsync"] == 1
    assert called["aclnnNLLLoss"] == 122
    # Results that lie elsewhere are other calls; there are few places.
    assert called["aclnnNLLLossGetWorkspaceSize"] < 60
    assert called["aclnnNLLLossBackwardGetWorkspaceSize"] < 60


def test_executors_are_not_kept_where_that_is_asked(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    done = on_ascend(PROGRAMS, "kept", CAUSEWAY_ASCEND_EXECUTORS="0", **log)
    assert done.stdout.endswith("equal\n")
    assert calls(tmp_path / "calls")["aclnnMmGetWorkspaceSize"] == 12


@pytest.mark.parametrize(
    "fault",
    ["aclSetAclOpExecutorRepeatable:1=561000", "aclSetTensorAddr:1=161002"],
)
def test_an_executor_that_cannot_be_kept_or_told_is_made_anew(on_ascend: Run, fault: str) -> None:
    assert on_ascend(PROGRAMS, "kept", ASCEND_STAND_IN_FAULT=fault).stdout.endswith("equal\n")


def test_the_oldest_executor_goes_where_there_are_too_many(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    done = on_ascend(PROGRAMS, "kept", CAUSEWAY_ASCEND_EXECUTORS="1", **log)
    assert done.stdout.endswith("equal\n")
    assert calls(tmp_path / "calls")["aclDestroyAclOpExecutor"] > 10


def test_two_processes_train_to_the_cpus_losses_by_hccl(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    said = json.loads(on_ascend(PROGRAMS, "ddp", **log).stdout.splitlines()[-1])
    assert said["ascend"] == pytest.approx(said["cpu"], rel=1e-4)
    for rank in (0, 1):
        called = calls(tmp_path / f"calls.{rank}")
        assert called["HcclAllReduce"] >= 10
        for name in ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAllV"):
            assert called[f"Hccl{name}"] >= 1, name
        # Two messages each way are two batches: a pair has one in a batch.
        assert called["HcclBatchSendRecv"] >= 10


def test_a_wrong_collective_is_found(on_ascend: Run) -> None:
    with pytest.raises(AssertionError, match="not equal"):
        on_ascend(PROGRAMS, "ddp", ASCEND_STAND_IN_WRONG="HcclAllReduce")


def test_a_captured_step_is_one_launch_of_acls_graph(on_ascend: Run, tmp_path: Path) -> None:
    log = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls")}
    assert on_ascend(PROGRAMS, "graph", **log).stdout.endswith("equal\n")
    called = calls(tmp_path / "calls")
    assert called["aclmdlRIExecuteAsync"] == 4
    assert called["aclnnMm"] == 2  # before the capture, and in it


@pytest.mark.parametrize("fault", ["aclmdlRICaptureBegin:1=207000", "aclmdlRICaptureEnd:1=507903"])
def test_without_a_capture_the_calls_are_made_at_each_replay(
    on_ascend: Run, tmp_path: Path, fault: str
) -> None:
    given = {"ASCEND_STAND_IN_CALLS": str(tmp_path / "calls"), "ASCEND_STAND_IN_FAULT": fault}
    assert on_ascend(PROGRAMS, "graph", **given).stdout.endswith("equal\n")
    assert calls(tmp_path / "calls").get("aclmdlRIExecuteAsync", 0) == 0


def test_the_digits_come_from_the_chips_operators_alone(on_ascend: Run) -> None:
    said = json.loads(on_ascend(PROGRAMS, "digits").stdout.splitlines()[-1])
    assert said["host"] == 0


def test_coverage_says_that_the_demo_runs_on_the_chip(on_ascend: Run, ascend_library: Path) -> None:
    digits = str(HERE.parents[1] / "examples/digits.py")
    options = ("--vendor", str(ascend_library), digits, "--", "--epochs", "1", "--accuracy", "0")
    said = on_ascend("-c", CAUSEWAY, "coverage", *options, CAUSEWAY_VENDOR="").stdout
    assert "100.0 % of" in said
    assert "host" not in said.split("calls:")[1]


def test_without_operators_the_host_computes(on_ascend: Run) -> None:
    said = json.loads(
        on_ascend(PROGRAMS, "digits", CAUSEWAY_ASCEND_OPS="0").stdout.splitlines()[-1]
    )
    assert said["ascend"] == pytest.approx(said["cpu"], rel=1e-4)
    assert said["host"] > 50
    assert said["derived"] == 0


def test_the_table_conforms(on_ascend: Run) -> None:
    done = on_ascend("-c", CAUSEWAY, "conformance", "--table")
    assert "\nconforms: " in done.stdout


def test_doctor_says_which_libraries_and_how_many_operators(on_ascend: Run, stand_in: Path) -> None:
    said = on_ascend("-c", "import torch; from causeway import _C; print(_C.vendor_notes())").stdout
    assert f"{stand_in}/libascendcl.so" in said
    assert "chip Ascend" in said
    assert "operators of the table are in CANN's libraries" in said


LOST = """
import time, torch, causeway
x = torch.rand(4, 4, device="ascend")
other = torch.ones(2, device="ascend:1")
event = torch.Event("ascend")
x.relu().exp()  # before it, and done

def work():
    y = x @ x
    z = y.sigmoid()  # behind it: not run, or told of the failure
    event.record()
    {wait}

for call in (work, lambda: x + 1, torch.accelerator.synchronize):
    try:
        call()
        print("nothing")
    except causeway.DeviceLostError as error:
        print(error)
print((other + 1).tolist())
"""


@pytest.mark.parametrize(
    "wait",
    [
        "z.cpu()",
        "torch.accelerator.synchronize()",
        "event.synchronize()",
        "time.sleep(0.3); y.exp()",  # the call of another operator is told
    ],
)
def test_a_core_that_fails_later_than_its_call_names_its_operator(
    on_ascend: Run, wait: str
) -> None:
    said = on_ascend("-c", LOST.format(wait=wait), ASCEND_STAND_IN_FAULT="aclnnMm:1@507015")
    first, *again, other = said.stdout.splitlines()
    assert first.startswith("ascend:0 is lost: work that it was given has failed, as ")
    assert "result 507015: E507015: aclnnMm: " in first
    assert again == [first, first]
    assert other == "[2.0, 2.0]"
