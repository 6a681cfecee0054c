"""The programs that torchrun starts lie here, and so does what starts them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
