"""DeepSpeed's builders of operators, for the device: it imports each module of this package.

Nothing is built: Adam is torch's fused one, and the others say that they are not there.
"""

from causeway.integrations.deepspeed_ops.absent import NotImplementedBuilder
from causeway.integrations.deepspeed_ops.fused_adam import FusedAdamBuilder

__all__ = ["FusedAdamBuilder", "NotImplementedBuilder"]
