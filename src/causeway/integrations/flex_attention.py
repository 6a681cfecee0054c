"""torch.nn.attention.flex_attention: a set of names says which devices may call it.

Called without torch.compile it is operators of the ladder, as it is on the CPU; the set gets the
device's name (see relabel.py). Compiled it is a kernel of Inductor's, for the devices it knows.
"""

from __future__ import annotations

import types

from causeway.integrations import Integration
from causeway.integrations.relabel import extend_lists


def _loaded(module: types.ModuleType) -> None:
    if "_validate_device" not in extend_lists(module, {"hpu", "xpu"}, beside={"cuda", "cpu"}):
        raise LookupError("_validate_device has no set of devices")


INTEGRATION = Integration(
    ("2.13.0", "2.13.0"), "its set of devices has the device's name", _loaded, "torch"
)
