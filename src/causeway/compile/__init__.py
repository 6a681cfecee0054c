"""torch.compile on the device: Inductor's fusion, kernels in the portable dialect.

`torch.compile(model)` is all a program says. docs/compile.md says what is fused, what is not, and
what each parameter of torch.compile does here.

names.py      what is used of Inductor beyond what torch promises
interface.py  what torch._dynamo asks of a device
backend.py    which kernels a graph gets, and the Python that calls them
kernel.py     a fused kernel's text
dialect.py    numbers, indices and functions as text
runtime.py    the kernels of a graph, built in one program
report.py     causeway.compile_report()
"""

from __future__ import annotations
