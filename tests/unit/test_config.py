"""Settings: one table, an unknown one raises, a mistake in the environment is found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from causeway import ConfigError, config, vendor


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for variable in [v for v in os.environ if v.startswith("CAUSEWAY_")]:
        monkeypatch.delenv(variable)


def test_default_environment_api_win_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (config.get("policy_budget"), config.source("policy_budget")) == (-1, "default")
    monkeypatch.setenv("CAUSEWAY_POLICY_BUDGET", " 7 ")
    assert (config.get("policy_budget"), config.source("policy_budget")) == (7, "env")
    with config.using(policy_budget=8):
        assert (config.get("policy_budget"), config.source("policy_budget")) == (8, "api")
    assert config.get("policy_budget") == 7


@pytest.mark.parametrize("ask", [config.get, config.source, config.reset, config.text])
def test_an_unknown_setting_raises_with_the_nearest_name(ask) -> None:
    with pytest.raises(ConfigError, match=r"no setting 'polcy'; did you mean 'policy'\?"):
        ask("polcy")
    with pytest.raises(ConfigError, match="did you mean 'policy'"):
        config.set("polcy", "warn")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("policy", "alow", "expected one of allow, warn, error; did you mean 'allow'"),
        ("policy", 1, "expected one of allow, warn, error"),
        ("policy_budget", "many", "expected an integer from -1"),
        ("policy_budget", -2, "expected an integer from -1"),
        ("policy_budget", True, "expected an integer from -1"),
        ("sim_devices", 65, "expected an integer from 0 to 64"),
        ("ledger", "maybe", "expected 1 or 0"),
        ("memory_fraction", 0, "above 0 and up to 1"),
        ("memory_fraction", "1.5", "above 0 and up to 1"),
        ("sim_memory", "4 gigs", "expected bytes such as"),
        ("fallback", "add(", "no regular expression"),
        ("fallback", 3, "expected names"),
        ("visible_devices", "1,x", "'x' is no device index"),
        ("visible_devices", "1,-1", "'-1' is no device index"),
        ("visible_devices", "1,,0", "'' is no device index"),
        ("visible_devices", "1_0", "'1_0' is no device index"),
        ("visible_devices", "0,1,0", "'0' is there twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:setting")
def test_a_bad_value_raises_from_python_and_is_a_problem_in_the_environment(
    name: str, value: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = config.get(name)
    with pytest.raises(ConfigError, match=words):
        config.set(name, value)
    assert config.get(name) == before
    if isinstance(value, str):
        monkeypatch.setenv(f"CAUSEWAY_{name.upper()}", value)
        assert config.get(name) == config.SETTINGS[name].default
        (problem,) = [p for p in config.problems() if p.severity == "error"]
        assert f"CAUSEWAY_{name.upper()} is {value!r}" in problem.message
        assert words in problem.message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("fallback", " add.out,  conv.* ,", ("add.out", "conv.*")),
        ("fallback", "add.out mul.out", ("add.out", "mul.out")),
        ("fallback", "", ()),
        ("visible_devices", "1, 0", (1, 0)),
        ("visible_devices", "", ()),
        ("ledger", "ON", True),
        ("ledger", "", False),
        ("policy", "Warn", "warn"),
        ("memory_fraction", "0.5", 0.5),
        ("sim_memory", "512M", "512M"),
    ],
)
def test_the_environment_is_read_as_meant(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"CAUSEWAY_{name.upper()}", text)
    assert config.get(name) == value
    assert not [p for p in config.problems() if p.severity == "error"]


def test_an_unknown_variable_is_a_problem_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAUSEWAY_POLCY", "warn")
    monkeypatch.setenv("CAUSEWAY_QQQ", "1")
    errors = [p.message for p in config.problems()]
    assert errors == [
        "CAUSEWAY_POLCY is no setting of Causeway; did you mean CAUSEWAY_POLICY?",
        "CAUSEWAY_QQQ is no setting of Causeway",
    ]


def test_a_vendors_own_variables_are_known_and_anothers_have_no_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAUSEWAY_ACME_TURBO", "1")
    assert config.problems(vendor="acme", vendors=["acme", "sim"]) == []
    (problem,) = config.problems(vendor="sim", vendors=["acme", "sim"])
    assert problem.severity == "unused"
    assert "the vendor in use is 'sim', not 'acme'" in problem.message
    (problem,) = config.problems(vendor="sim", vendors=["sim"])
    assert problem.severity == "error"


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor that has declared its settings."""
    monkeypatch.setattr(config, "SETTINGS", dict(config.SETTINGS))
    config.declare(
        "acme",
        {
            "turbo": ("flag", False, "Faster."),
            "model": (("auto", "fine"), "auto", "How memory is shared."),
            "most": ("bytes", "", "Bytes at most."),
        },
    )


def test_settings_that_a_vendor_declares_are_checked(
    acme: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_ACME_TRUBO", "1")
    monkeypatch.setenv("CAUSEWAY_ACME_MODEL", "coarse")
    monkeypatch.setenv("CAUSEWAY_ACME_MOST", "4G")
    wrong, unknown = sorted(p.message for p in config.problems(vendor="acme", vendors=["acme"]))
    expected = "expected one of auto, fine; it counts as auto"
    assert wrong == f"CAUSEWAY_ACME_MODEL is 'coarse': {expected}"
    assert unknown == (
        "CAUSEWAY_ACME_TRUBO is no setting of Causeway; did you mean CAUSEWAY_ACME_TURBO?"
    )
    assert ("acme_most", "4G", "env", "Bytes at most.") in config.rows()
    told = vendor.Settings("acme")
    assert told.pushed() == {"model": None}
    assert told("most") == "4G"
    monkeypatch.setattr(config, "_past", [])
    with config.using(acme_turbo=True):
        assert told.pushed()["turbo"] == "1"


@pytest.mark.parametrize(
    "row",
    [("number", 1, "What."), ("flag", False), ("flag", False, 3), (("a",), "a", "x", "y"), None],
)
def test_a_table_that_cannot_be_read_adds_nothing(
    acme: None, row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [*config.SETTINGS]
    with pytest.raises(ConfigError, match=r"'bad' is declared as .*expected"):
        config.declare("acme", {"good": ("flag", True, "Well."), "bad": row})
    with pytest.raises(ConfigError, match="known already"):
        config.declare("acme", {"turbo": ("flag", True, "Again.")})
    assert [*config.SETTINGS] == before


def test_settings_of_the_simulated_chip_are_unused_with_another_vendor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CAUSEWAY_SIM_DEVICES", "3")
    (problem,) = config.problems(vendor="acme")
    assert problem.severity == "unused"
    assert config.problems(vendor="sim") == []


def test_a_setting_without_effect_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAUSEWAY_POLICY_BUDGET", "3")
    (problem,) = config.problems()
    assert problem.message == "CAUSEWAY_POLICY_BUDGET has no effect without CAUSEWAY_POLICY"
    with pytest.warns(UserWarning, match="takes effect at import, which is over"):
        config.set("sim_devices", 3)
    config.reset("sim_devices")


def test_update_is_all_or_nothing() -> None:
    with pytest.raises(ConfigError):
        config.update({"policy_budget": 3, "policy": "perhaps"})
    assert config.source("policy_budget") == "default"


def test_a_refused_change_is_undone() -> None:
    def refuse() -> None:
        raise ConfigError("not so")

    former = config._listeners.get("ledger")
    config.listen(["ledger"], refuse)
    try:
        with pytest.raises(ConfigError, match="not so"):
            config.set("ledger", True)
        assert config.source("ledger") == "default"
    finally:
        config._listeners.pop("ledger")
        if former:
            config._listeners["ledger"] = former


def test_the_vendor_gets_text_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.text("sim_devices") is None
    monkeypatch.setenv("CAUSEWAY_SIM_DEVICES", "3")
    assert config.text("sim_devices") == "3"
    with (
        pytest.warns(UserWarning, match="is over"),
        config.using(sim_personality=["no-fp64", "no-int64"]),
    ):
        assert config.text("sim_personality") == "no-fp64,no-int64"


def test_every_setting_explains_itself() -> None:
    for setting in config.SETTINGS.values():
        assert setting.meaning.endswith(".")
        assert setting.kind.label
        if setting.default is not None:
            assert setting.kind.read(setting.default) == setting.default


def test_the_command_lists_value_and_source(run_python) -> None:
    program = "import sys; from causeway.cli import app; app(['config', '--json'])"
    done = run_python(program, CAUSEWAY_POLICY="warn")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["policy"]["value"] == "warn"
    assert rows["policy"]["source"] == "env"
    assert rows["ledger"]["source"] == "default"
    assert list(rows) == list(config.SETTINGS)


@pytest.mark.parametrize(
    ("given", "steps"),
    [("10-20", (10, 20)), (" 3 ", (3, 3)), ("7-", (7, 1 << 62)), ("-4", (1, 4)), ("", None),
     ((2, 5), (2, 5)), (None, None)],
)  # fmt: skip
def test_steps_are_read_as_first_and_last(given: object, steps: object) -> None:
    with config.using(dump_steps=given):
        assert config.get("dump_steps") == steps


@pytest.mark.parametrize("given", ["x", "5-3", "0-2", "1:2", (3, 1), (0, 1), 7, (1, 2, 3)])
def test_steps_that_are_none_raise(given: object) -> None:
    with pytest.raises(ConfigError, match="'dump_steps'"):
        config.set("dump_steps", given)


def test_a_problem_of_one_setting_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.problem("dump") is None
    monkeypatch.setenv("CAUSEWAY_DUMP", "7")
    assert config.problem("dump") == "CAUSEWAY_DUMP is '7': expected an integer from 0 to 3; " \
        "it counts as 0"  # fmt: skip
    monkeypatch.setenv("CAUSEWAY_DUMP", "0")
    assert config.problem("dump") is None
