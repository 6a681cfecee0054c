"""torch_mlu.utils: the switch that redirects CUDA's calls."""

from causeway.compat.missing import getter

__getattr__ = getter(
    "torch_mlu.utils",
    {
        "dumptool": "CAUSEWAY_DUMP=2, or causeway.dump(2)",
        "cpp_extension": "torch.utils.cpp_extension, and the vendor's own operators in its table",
        "counter": "CAUSEWAY_DUMP_STEPS",
    },
)
