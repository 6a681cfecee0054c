"""mindtorch.tools: `from mindtorch.tools import mstorch_enable` redirects CUDA's calls."""

from causeway.compat.missing import getter

__getattr__ = getter(
    "mindtorch.tools",
    {
        "convert_tensor": "nothing: tensors are torch's",
        "checkpoint_tool": "torch.load; of MindSpore's files write a state_dict there first",
        "debug_layer_info": "CAUSEWAY_DUMP=2, or causeway.dump(2)",
    },
)
