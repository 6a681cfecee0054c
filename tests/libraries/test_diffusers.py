"""diffusers on the device: a pipeline of a model of a few weights, offloaded in each of its ways.

Its packages lie beside the environment (`make test-libraries` puts them there), two of them: the
newest, which asks torch.accelerator, and the last of those that have a table of devices.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warm

pytestmark = [pytest.mark.once, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
VERSIONS = ["diffusers", "diffusers-0.38.0"]

BEGIN = """
import sys, torch, causeway, diffusers
from diffusers.utils import torch_utils
name = torch._C._get_privateuse1_backend_name()
torch.manual_seed(0)
def pipeline():
    unet = diffusers.UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    made = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler(num_train_timesteps=10))
    made.set_progress_bar_config(disable=True)
    return made
x = torch.randn(2, 3, 8, 8)
def predicted(made, device):  # some pipelines of 0.38 lose their device once they are offloaded
    with torch.no_grad():
        return made.unet(x.to(device), torch.tensor(3, device=device)).sample.cpu()
plain = pipeline()
weights = plain.unet.state_dict()
expected = predicted(plain, "cpu")
made = pipeline()
made.unet.load_state_dict(weights)
"""

WAYS = {
    "moved": "made.to(name)",
    "model": "made.enable_model_cpu_offload()",
    "sequential": "made.enable_sequential_cpu_offload()",
    "stream": """
made.to(name)
made.unet.enable_group_offload(onload_device=torch.device(name), offload_type="leaf_level",
                               use_stream=True)
""",
    "map": """
made.save_pretrained(sys.argv[1])
made = diffusers.DDPMPipeline.from_pretrained(sys.argv[1], device_map=name)
made.set_progress_bar_config(disable=True)
assert made.unet.device.type == name
""",
}

END = """
with causeway.ledger() as ledger:
    found = predicted(made, name)
assert any("convolution" in row.operator for row in ledger.rows), ledger.table()
torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
"""

FUNCTIONS = """
assert torch_utils.get_device() == name
torch_utils.backend_manual_seed(name, 0)
torch_utils.backend_synchronize(name)
torch_utils.backend_empty_cache(name)
torch_utils.backend_reset_peak_memory_stats(name)
x = torch.ones(4096, device=name)
assert torch_utils.backend_max_memory_allocated(name) >= 4096 * 4
assert torch_utils.backend_device_count(name) == torch.get_device_module(name).device_count()
diffusers.training_utils.set_seed(0)
"""


@pytest.fixture(params=VERSIONS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], None]:
    place = ROOT / "build" / request.param
    if not place.is_dir():
        pytest.skip("diffusers is not installed: `make test-libraries`")

    def run(program: str) -> None:
        code = f"import sys; sys.path.insert(0, {str(place)!r})\n{program}"
        done = warm.run(["-c", code, tmp_path / "saved"], timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("way", WAYS)
def test_a_pipeline_computes_what_the_cpu_does(run: Any, way: str) -> None:
    run(BEGIN + WAYS[way] + END)


def test_functions_by_device_know_it(run: Any) -> None:
    run(BEGIN.partition("torch.manual_seed(0)")[0] + FUNCTIONS)
