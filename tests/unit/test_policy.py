"""The policy for the host rung, and operators that are forced there."""

from __future__ import annotations

import warnings

import pytest
import torch

import causeway
from causeway import ConfigError, FallbackError, config
from causeway.ops import ladder

FORCED = "sin.*, sin, cos.*, cos"


@pytest.fixture(autouse=True)
def on_the_host():
    """sin and cos go to the host whatever the vendor offers, and nothing else is forced."""
    with causeway.fallback(FORCED):
        yield


def test_error_names_operator_and_remedy(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    with causeway.policy("error"), pytest.raises(FallbackError) as caught:
        a.sin()
    for words in ("sin", "policy", "causeway.policy("):
        assert words in str(caught.value)
    a.sin()


def test_warn_says_it_once_per_operator(run_python) -> None:
    program = """
import torch, causeway
a = torch.ones(4, device="sim")
with causeway.fallback("sin.*, sin"), causeway.policy("warn", only=["sin.*"]):
    for _ in range(3):
        a.sin()
"""
    assert run_python(program).stderr.count("runs on the host") == 1


def test_only_leaves_other_operators_alone(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    with causeway.policy("error", only=["cos.*", "cos"]):
        a.sin()
        with pytest.raises(FallbackError):
            a.cos()


def test_a_budget_is_spent_before_the_policy_holds(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    with causeway.policy("error", only=["sin.*", "sin"], budget=2):
        a.sin()
        a.sin()
        with pytest.raises(FallbackError):
            a.sin()


def test_policies_nest_and_put_back_what_was(device: torch.device) -> None:
    a = torch.ones(4, device=device)
    with causeway.policy("error", only=["sin.*", "sin"]):
        with causeway.policy("allow"):
            a.sin()
        with pytest.raises(FallbackError):
            a.sin()
        with causeway.policy(only=["cos.*", "cos"]):
            a.sin()
    a.sin()
    assert config.source("policy") == "default"


def test_a_policy_may_be_set_without_a_with(run_python) -> None:
    program = """
import torch, causeway
causeway.policy(fallback="error"); causeway.fallback("sin.*, sin")
try:
    torch.empty(1, device="sim").sin()
except causeway.FallbackError:
    print("refused")
"""
    assert run_python(program).stdout == "refused\n"


@pytest.mark.parametrize(
    "variables",
    [
        {"CAUSEWAY_POLICY": "error", "CAUSEWAY_FALLBACK": " sin.* ,  aten::sin"},
        {"CAUSEWAY_POLICY": "error", "CAUSEWAY_FALLBACK": "sin", "CAUSEWAY_POLICY_ONLY": "sin"},
        {"CAUSEWAY_POLICY": "error", "CAUSEWAY_FALLBACK": "sin", "CAUSEWAY_POLICY_BUDGET": "0"},
    ],
)
def test_the_environment_says_it_too(run_python, variables) -> None:
    program = """
import torch, causeway
try:
    torch.empty(1, device="sim").sin()
except causeway.FallbackError:
    print("refused")
"""
    done = run_python(program, **variables)
    assert done.stdout == "refused\n"
    assert done.stderr == ""


def test_an_unknown_operator_raises_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'ad\.out' matches no operator; did you mean 'add.out'"):
        causeway.fallback("ad.out")
    assert config.get("fallback") == tuple(FORCED.split(", "))
    with pytest.raises(ConfigError, match="policy_only"):
        causeway.policy("error", only=["no_such_operator"])


def test_a_bad_word_raises() -> None:
    with pytest.raises(ConfigError, match="did you mean 'allow'"):
        causeway.policy("alow")  # type: ignore[arg-type]


def test_patterns_mean_whole_names() -> None:
    operators = ["aten::add.out", "aten::add_.Tensor", "aten::convolution", "mylib::add"]

    def match(*patterns: str) -> list[str]:
        with config.using(policy_only=patterns):
            return ladder.match("policy_only", operators)

    # `using` pushes to the core, which knows only torch's operators: none of these may be unknown.
    assert match("add.out") == ["aten::add.out"]
    assert match("add") == ["aten::add.out", "mylib::add"]
    assert match("aten::add") == ["aten::add.out"]
    assert match("conv.*", "aten::add_.*") == ["aten::convolution", "aten::add_.Tensor"]


def test_nothing_is_said_where_all_is_allowed(device: torch.device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.ones(4, device=device).sin()
