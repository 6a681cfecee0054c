"""`causeway doctor`: what is here, what is broken, and the exit status that says so."""

from __future__ import annotations

import json

import pytest

from causeway import doctor

DOCTOR = "import sys; from causeway.cli import app; app(['doctor', *sys.argv[1:]])"


def test_a_good_machine_passes(run_python) -> None:
    done = run_python(DOCTOR)
    for words in (
        f"(made for: {doctor.TORCH})",
        "vendor",
        "sim:1",
        "16.0 GiB",
        "workarounds",
        "good: 2 devices at level",
    ):
        assert words in done.stdout


def test_json_says_the_same(run_python) -> None:
    report = json.loads(run_python(DOCTOR, args=("--json",)).stdout)
    assert report["broken"] == []
    assert report["verdict"].startswith("good")
    assert {"causeway", "torch", "python"} == set(report["versions"])
    assert [device["device"] for device in report["devices"]] == ["sim:0", "sim:1"]
    assert "float32" in report["devices"][0]["dtypes"]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CAUSEWAY_VENDOR": "/no.so"}, "there is no device: CAUSEWAY_VENDOR is '/no.so'"),
        ({"CAUSEWAY_POLCY": "warn"}, "did you mean CAUSEWAY_POLICY?"),
        ({"CAUSEWAY_POLICY": "alow"}, "CAUSEWAY_POLICY is 'alow'"),
        ({"CAUSEWAY_FALLBACK": "ad.out"}, "did you mean 'add.out'"),
        ({"CAUSEWAY_VISIBLE_DEVICES": "9"}, "there is no device 9"),
        ({"CAUSEWAY_VISIBLE_DEVICES": ""}, "no device is visible"),
        ({"CAUSEWAY_SIM_DEVICES": "0"}, "no device is visible"),
        ({"CAUSEWAY_SIM_FAULT": "device_count:*=FAILED"}, "VendorError"),
        ({"CAUSEWAY_SIM_OPS": "all", "CAUSEWAY_SIM_CORRUPT": "aten::add.out"}, "it adds wrongly"),
    ],
)
def test_what_is_broken_is_said_and_fails(run_python, variables, words: str) -> None:
    done = run_python(DOCTOR, status=1, **variables)
    verdict = done.stdout.strip().splitlines()[-1]
    assert verdict.startswith("broken: ")
    assert words in verdict


def test_a_setting_without_effect_is_said_but_does_not_fail(run_python) -> None:
    done = run_python(DOCTOR, CAUSEWAY_POLICY_BUDGET="3")
    assert "CAUSEWAY_POLICY_BUDGET has no effect" in " ".join(done.stdout.split())


def test_each_missing_entry_says_what_it_costs(run_python) -> None:
    report = json.loads(run_python(DOCTOR, args=("--json",), CAUSEWAY_SIM_LEVEL="0").stdout)
    assert report["level"] == 0
    assert report["missing"]["op_find"] == (
        "no native operator: all run on the rungs below, portable (code.v1) and host"
    )
    assert any("stream_create" in names for names in report["missing"])
    assert all(report["missing"].values())


def test_every_optional_entry_has_its_cost() -> None:
    from causeway import _C

    needed = {"device_count", "device_info", "sync", "mem_alloc", "mem_free", "mem_copy"}
    explained = {name for names in doctor.COSTS for name in names.split(", ")}
    assert explained == set(_C.vendor_state()["entries"]) - needed


def test_a_policy_does_not_make_a_machine_look_broken(run_python) -> None:
    run_python(DOCTOR, CAUSEWAY_POLICY="error")


def test_a_container_without_a_device_is_told_of(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(doctor, "_CONTAINER", (str(tmp_path / "mark"),))
    monkeypatch.setattr(doctor.state, "error", "the driver says no")
    assert doctor.examine().broken[0] == "there is no device: the driver says no"
    (tmp_path / "mark").touch()
    assert "docker run --device" in doctor.examine().broken[0]
