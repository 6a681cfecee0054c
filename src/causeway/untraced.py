"""Functions that torch's compiler does not compile when they are called while it is at work."""

from __future__ import annotations

from types import CodeType, FunctionType, ModuleType

import torch


def untraced(function: FunctionType) -> None:
    """Keep the compiler from compiling a function that is called while it is at work; as a part of
    a program that is compiled it is looked into all the same.

    What `skip_code` of torch._dynamo does, without the import of that, which takes seconds. Where
    torch spells it otherwise, some more is compiled.
    """
    frames = torch._C._dynamo.eval_frame
    try:
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        strategy = frames._FrameExecStrategy(skip, default)
        for code in _codes(function.__code__):
            frames.set_code_exec_strategy(code, strategy)
    except AttributeError:
        return


def untraced_module(module: ModuleType) -> None:
    """The same for all functions and methods that a module defines."""
    for value in list(vars(module).values()):
        found = list(vars(value).values()) if isinstance(value, type) else [value]
        for one in found:
            function = getattr(one, "__wrapped__", getattr(one, "__func__", one))
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                untraced(function)


def _codes(code: CodeType) -> list[CodeType]:
    inner = [c for const in code.co_consts if isinstance(const, CodeType) for c in _codes(const)]
    return [code, *inner]
