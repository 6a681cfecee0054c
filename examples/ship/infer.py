"""Digits from a model file, in Python without torch:

python infer.py libcw_sim.so digits.cw images.bin

It needs numpy, and nothing of torch is loaded.
"""

from __future__ import annotations

import sys

import numpy as np

import causeway_run


def main(library: str, file: str, images: str) -> None:
    # The simulated chip's kernels are C that is built here: the flag says that the file is our own.
    with causeway_run.load(file, library, allow_host_code=True) as model:
        session, image = model.session(), model.inputs["image"]
        for batch in np.fromfile(images, image.numpy).reshape(-1, *image.shape):
            scores = session(image=batch)["output"]
            print("".join(map(str, scores.argmax(axis=1))))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except causeway_run.RunError as error:
        sys.exit(f"infer: {error}")
