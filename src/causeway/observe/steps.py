"""Which step of training runs, and whether an optimizer does: counted while a tool is open.

Step 1 ends with the first `optimizer.step()`. Where several optimizers step in turn, a step is one
round of them: the count is that of the optimizer that stepped most often. A program without an
optimizer, or one that counts otherwise, calls `causeway.step()` at the end of each of its steps;
from the first such call on, optimizers are not counted any more.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

_lock = threading.Lock()
_users = 0
_handles: list[Any] = []
_done = 0  # steps that are over
_by_hand = False
_counts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_local = threading.local()


def step() -> None:
    """Say that a step is over: the tools' step counter moves on by one."""
    global _done, _by_hand
    with _lock:
        _done, _by_hand = _done + 1, True


def current() -> int:
    """The number of the step that runs: 1 until one is over."""
    return _done + 1


def reset() -> None:
    """Start again at step 1."""
    global _done, _by_hand
    with _lock:
        _done, _by_hand = 0, False
        _counts.clear()


def optimizer() -> str:
    """The class of the optimizer whose step runs on this thread, or ""."""
    return getattr(_local, "optimizer", "")


def before_end(hook: Any) -> Any:
    """Call hook(optimizer, args, kwargs) at the end of each optimizer's step, while it still counts
    as that step; gives a handle to remove it. Only while counting is open.
    """
    handle = _Handle(hook)
    _hooks.append(handle)
    return handle


class _Handle:
    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def remove(self) -> None:
        _hooks.remove(self)


_hooks: list[_Handle] = []


def open() -> None:
    """Count from now on; each open needs a close. The first of several starts at step 1."""
    global _users
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    _users += 1
    if _users == 1:
        reset()
        _handles.append(register_optimizer_step_pre_hook(_enter))
        _handles.append(register_optimizer_step_post_hook(_leave))


def close() -> None:
    global _users
    _users -= 1
    if _users == 0:
        while _handles:
            _handles.pop().remove()


def _enter(optimizer: Any, args: Any, kwargs: Any) -> None:
    _local.optimizer = type(optimizer).__name__


def _leave(optimizer: Any, args: Any, kwargs: Any) -> None:
    global _done
    _local.optimizer = ""
    for handle in list(_hooks):
        handle.hook(optimizer, args, kwargs)
    with _lock:
        count = _counts[optimizer] = _counts.get(optimizer, _done) + 1
        if not _by_hand:
            _done = max(_done, count)
