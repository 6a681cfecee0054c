"""`python -m causeway.device --markdown` prints docs/device.md; without it, the devices."""

from __future__ import annotations

import sys

from causeway.device import names
from causeway.device.lazy import device_count
from causeway.device.properties import get_device_properties


def main(args: list[str]) -> int:
    if args == ["--markdown"]:
        sys.stdout.write(names.markdown())
        return 0
    if args:
        print("usage: python -m causeway.device [--markdown]", file=sys.stderr)
        return 2
    for index in range(device_count()):
        print(index, get_device_properties(index))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
