"""Stands first on the path where CAUSEWAY_COMPAT asks for it (`causeway run`, `causeway compat
install`): torch is imported, Causeway attaches the device, and the package becomes Causeway's.
"""

import torch  # noqa: F401

from causeway import compat

compat.stand_in(__name__)
