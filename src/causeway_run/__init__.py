"""Run a model file from Python without torch: numpy arrays in, numpy arrays out.

    import causeway_run

    with causeway_run.load("model.cw", vendor="libcw_opencl.so") as model:
        logits = model.session()(image=image)["logits"]

It is `include/causeway/run.h` by ctypes: the file and the chip are the C runtime's, and nothing is
computed here. It needs Python, numpy, `libcw_run.so` and the vendor's library. It stands next to
`causeway` and not in it, because importing `causeway` imports torch where that is installed.
"""

from causeway_run.library import RunError
from causeway_run.model import Device, Model, Port, Run, Session, Size, Step, load

__all__ = ["Device", "Model", "Port", "Run", "RunError", "Session", "Size", "Step", "load"]
