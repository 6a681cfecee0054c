"""The builder that stands for each operator of DeepSpeed's that the device has not."""

from __future__ import annotations

from typing import Any

from deepspeed.ops.op_builder.builder import OpBuilder

from causeway.errors import CausewayError


class NotImplementedBuilder(OpBuilder):  # type: ignore[misc]
    """Builds nothing, and says so when it is asked."""

    BUILD_VAR = "DS_BUILD_NOT_IMPLEMENTED"
    NAME = "deepspeed_not_implemented"

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name or self.NAME)

    def absolute_name(self) -> str:
        """Return the name that DeepSpeed would give the module."""
        return f"deepspeed.ops.{self.name}_op"

    def sources(self) -> list[str]:
        """Return []."""
        return []

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return False."""
        return False

    def load(self, verbose: bool = True) -> Any:
        """Raise: DeepSpeed's kernels are CUDA."""
        raise CausewayError(
            "DeepSpeed asked for a fused operator of its own, which is written for other devices; "
            'use torch\'s in its place: an optimizer of torch.optim, "torch_adam": true'
        )
