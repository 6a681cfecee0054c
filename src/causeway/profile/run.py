"""The profiler over a script, or over some steps of it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from causeway import atomic
from causeway.errors import CausewayError


class Steps:
    """Optimizer steps `first` to `last` (counted from 0, `last` not included) of a script."""

    def __init__(self, first: int, last: int) -> None:
        if not 0 <= first < last:
            raise CausewayError(
                f"--steps {first}:{last} holds no step; give FIRST:LAST, as in 10:15 for the 11th "
                "to the 15th step of the optimizer"
            )
        self.first, self.last = first, last

    @classmethod
    def parse(cls, text: str) -> Steps:
        """ "5" is the first five, "10:15" the 11th to the 15th."""
        first, colon, last = text.rpartition(":")
        try:
            return cls(int(first) if colon else 0, int(last))
        except ValueError:
            raise CausewayError(
                f"--steps {text!r} is neither a number of steps nor FIRST:LAST"
            ) from None


class Profile:
    """torch.profiler over a whole script, or over some steps of its first optimizer."""

    def __init__(self, steps: Steps | None, *, stack: bool, shapes: bool, memory: bool) -> None:
        activities = [
            torch.profiler.ProfilerActivity.CPU,
            torch.profiler.ProfilerActivity.PrivateUse1,
        ]
        schedule = None
        if steps is not None:
            warmup = min(1, steps.first)
            schedule = torch.profiler.schedule(
                wait=steps.first - warmup,
                warmup=warmup,
                active=steps.last - steps.first,
                repeat=1,
            )
        self._ready = False
        self._optimizer: int | None = None
        self._steps = steps
        self._ended = ""
        self.seen = 0
        self.profiler = torch.profiler.profile(
            activities=activities,
            schedule=schedule,
            on_trace_ready=self._on_ready,
            with_stack=stack,
            record_shapes=shapes,
            profile_memory=memory,
        )

    def _on_ready(self, _: Any) -> None:
        self._ready = True

    def _on_step(self, optimizer: Any, *_: Any) -> None:
        # A second optimizer (of a GAN, say) steps within the same step of the program.
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._optimizer == id(optimizer):
            self.seen += 1
            if not self._ended:
                self.profiler.step()

    @contextlib.contextmanager
    def _giving_way(self) -> Iterator[None]:
        """End this profile where the program starts one of its own: torch has one at a time, and
        crashes where the first is stopped after the second.
        """
        kind = torch.autograd.profiler.profile
        original = kind._prepare_trace

        def prepare(profiler: Any) -> None:
            if profiler is not self.profiler.profiler and not self._ended:
                self._ended = "the program started a profiler of its own"
                self.profiler.stop()
                print(
                    f"causeway profile: {self._ended}; what comes after it is not in this profile, "
                    "since torch has one at a time",
                    file=sys.stderr,
                )
            original(profiler)  # type: ignore[no-untyped-call]

        kind._prepare_trace = prepare  # type: ignore[method-assign]
        try:
            yield
        finally:
            kind._prepare_trace = original  # type: ignore[method-assign]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Profile what is run within."""
        hook = None
        if self._steps is not None:
            from torch.optim.optimizer import register_optimizer_step_post_hook

            hook = register_optimizer_step_post_hook(self._on_step)
        with _quiet_kineto():
            self.profiler.start()
        try:
            with self._giving_way():
                yield
        finally:
            if not self._ended:
                self.profiler.stop()
            if hook is not None:
                hook.remove()

    def write(self, path: Path) -> None:
        """Write the trace, all of it or nothing; `.gz` is compressed."""
        if not self._ready:
            why = "no optimizer took a step" if not self.seen else f"there were {self.seen} steps"
            why = self._ended or why
            steps = self._steps
            asked = "" if steps is None else f" of steps {steps.first}:{steps.last}"
            raise CausewayError(f"there is no trace{asked}: {why}")
        with atomic.replacing(path) as part:  # torch looks at how the name ends
            self.profiler.export_chrome_trace(str(part))


@contextlib.contextmanager
def _quiet_kineto() -> Iterator[None]:
    """Kineto of torch 2.13 writes two lines about each trace; it reads its level at the first."""
    if "KINETO_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["KINETO_LOG_LEVEL"] = "99"
    try:
        yield
    finally:
        del os.environ["KINETO_LOG_LEVEL"]
