"""`causeway_run` by the name that goes with the rest: model files from Python, numpy in, numpy out.

Where torch is installed, importing anything of `causeway` imports it; `causeway_run` never does.
"""

from causeway_run import Device, Model, Port, Run, RunError, Session, Size, Step, load

__all__ = ["Device", "Model", "Port", "Run", "RunError", "Session", "Size", "Step", "load"]
