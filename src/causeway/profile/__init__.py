"""Where the time of a program goes: `causeway profile script.py` and what it is made of.

The core gives torch.profiler the device's work (csrc/runtime/profile.cpp, csrc/torch/kineto.cpp);
this runs a script under it, reads the trace that torch writes, and sums it up. It reads
traces that torch wrote elsewhere too, on CUDA for one.
"""
