"""Nothing stays behind: disable() restores every symbol, and an enable() that fails leaves none."""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

import pytest
import torch
import torch.utils._device  # what enable() imports, so that the snapshots agree

from causeway import transfer
from causeway.redirect import replacements


def is_state(value: Any) -> bool:
    """Numbers and containers are no symbols: compilers count in them, and make new ones."""
    kind = type(value)
    return (
        issubclass(kind, int | float | itertools.count)
        or hasattr(kind, "__setitem__")
        or (issubclass(kind, set))
    )


def snapshot() -> dict[tuple[str, str], int]:
    """The identity of every attribute of every module of torch, and of the classes in them."""
    found: dict[tuple[str, str], int] = {}
    keep: list[Any] = []
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if not isinstance(module, types.ModuleType) or not name.startswith(("torch", "causeway")):
            continue
        for key, value in list(vars(module).items()):
            if is_state(value):
                continue
            found[name, key] = id(value)
            if isinstance(value, type):
                keep.append(value)
                for inner, content in list(vars(value).items()):
                    if inner not in ("__weakref__", "__dict__") and not is_state(content):
                        found[f"{name}.{key}", inner] = id(content)
    return found


IGNORED = ("causeway.redirect", "causeway.transfer")


def difference(before: dict[tuple[str, str], int]) -> list[tuple[str, str]]:
    after = snapshot()
    owners = {name for name, _ in before}
    return [
        key
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
        and not key[0].startswith(IGNORED)
        and (key in before or key[0] in owners)
        and key[1] not in ("__warningregistry__", "redirect", "transfer")
    ]


@pytest.mark.parametrize("target", ["device", "cpu"])
def test_disable_restores_every_symbol_of_torch(target: str) -> None:
    transfer.enable(target)  # loads what it needs
    transfer.disable()
    before = snapshot()
    transfer.enable(target)
    assert len(difference(before)) > 200
    transfer.disable()
    assert difference(before) == []


def test_what_is_put_in_cudas_place_keeps_its_own() -> None:
    kinds = (torch.FloatTensor, torch.cuda.FloatTensor, torch.cuda.HalfTensor)
    for target in ("cpu", "device", "cpu"):
        with transfer.enable(target):
            pass
        assert (torch.FloatTensor, torch.cuda.FloatTensor, torch.cuda.HalfTensor) == kinds


def test_names_bound_while_it_was_on_are_restored_too() -> None:
    original = torch.zeros
    with transfer.enable():
        module = types.ModuleType("transfer_bound_later")
        sys.modules[module.__name__] = module
        exec("from torch import zeros\nfrom torch.cuda import is_available", vars(module))
        assert vars(module)["zeros"] is not original
        assert vars(module)["is_available"]()
    del sys.modules[module.__name__]
    assert vars(module)["zeros"] is original
    assert not vars(module)["is_available"]()


def test_a_failure_leaves_nothing_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("planted")

    transfer.enable()
    transfer.disable()
    before = snapshot()
    monkeypatch.setitem(replacements.HOW, "backend name", fail)
    with pytest.raises(ZeroDivisionError):
        transfer.enable()
    monkeypatch.undo()
    assert difference(before) == []
    assert transfer.enabled() == ""


def test_a_failure_at_the_end_leaves_nothing_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from causeway.redirect import around

    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("planted")

    transfer.enable()
    transfer.disable()
    before = snapshot()
    monkeypatch.setattr(around, "_compiler", fail)
    with pytest.raises(ZeroDivisionError):
        transfer.enable()
    monkeypatch.undo()
    assert difference(before) == []


def test_another_patch_on_top_of_ours_stays() -> None:
    def theirs(*args: Any, **kwargs: Any) -> str:
        return "theirs"

    original = torch.Tensor.to
    try:
        with transfer.enable():
            torch.Tensor.to = theirs  # type: ignore[assignment, method-assign]
        assert torch.ones(1).to("cpu") == "theirs"
    finally:
        del torch.Tensor.to
    assert torch.Tensor.to is original or torch.Tensor.to == original
