"""torchvision's nms and roi_align: by a kernel, and on the host where the chip has no compiler.

torchvision itself is not here (tests/libraries runs it). A package of its name stands for the case
that Causeway has to help: its library does not load, its Python declares results.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

PACKAGE = {
    "__init__.py": "from torchvision import extension, results\n",
    "extension.py": "def _has_ops():\n    return False\n",
    "results.py": """
import torch
from torchvision import extension
assert extension._has_ops()
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, threshold):
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)
@torch.library.register_fake("torchvision::roi_align")
def roi_align(x, rois, scale, height, width, ratio, aligned):
    return x.new_empty(rois.shape[0], x.shape[1], height, width)
@torch.library.register_fake("torchvision::_roi_align_backward")
def back(grad, rois, scale, h, w, images, channels, height, width, ratio, aligned):
    return grad.new_empty(images, channels, height, width)
""",
}

# The definitions, one box and one sample at a time.
DEFINED = """
import math, torch, causeway, torchvision
ops, device = torch.ops.torchvision, torch.accelerator.current_accelerator()
pick = torch.Generator().manual_seed(0)
def boxes(n, low=0.0, dtype=torch.float32):
    at = torch.rand(n, 2, generator=pick) * 30 + low
    return torch.cat([at, at + torch.rand(n, 2, generator=pick) * 12], 1).to(dtype)
def best(b, scores, threshold):
    kept, area = [], (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    for i in scores.sort(descending=True, stable=True).indices.tolist():
        def share(j):
            w = (torch.minimum(b[i, 2], b[j, 2]) - torch.maximum(b[i, 0], b[j, 0])).clamp(min=0)
            h = (torch.minimum(b[i, 3], b[j, 3]) - torch.maximum(b[i, 1], b[j, 1])).clamp(min=0)
            return (w * h / (area[i] + area[j] - w * h)).item()
        if not any(share(j) > threshold for j in kept):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.long)
def sample(image, y, x):
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros(image.shape[0], dtype=image.dtype)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    a, b = int(y), int(x)
    c, d = min(a + 1, height - 1), min(b + 1, width - 1)
    u, v = y - a, x - b
    return ((1 - u) * (1 - v) * image[:, a, b] + (1 - u) * v * image[:, a, d]
            + u * (1 - v) * image[:, c, b] + u * v * image[:, c, d])
def align(images, rois, scale, height, width, ratio, aligned):
    found = []
    for roi in rois.double().tolist():
        x0, y0, x1, y1 = (v * scale - (0.5 if aligned else 0) for v in roi[1:])
        w, h = x1 - x0, y1 - y0
        if not aligned:
            w, h = max(w, 1), max(h, 1)
        m = ratio if ratio > 0 else math.ceil(h / height)
        n = ratio if ratio > 0 else math.ceil(w / width)
        found.append(torch.stack([torch.stack([sum(
            sample(images[int(roi[0])], y0 + (i + (k + 0.5) / m) * h / height,
                   x0 + (j + (l + 0.5) / n) * w / width)
            for k in range(m) for l in range(n)) / max(m * n, 1)
            for j in range(width)], 1) for i in range(height)], 1))
    return torch.stack(found)
def rungs(ledger):
    return sorted({f"{r.operator.partition('::')[2]} {r.rung}" for r in ledger.rows
                   if r.operator.startswith("torchvision::")})
"""

CHIPS = {
    "in turn": {"CAUSEWAY_SIM_CODE": "1"},
    "teams": {
        "CAUSEWAY_SIM_CODE": "1",
        "CAUSEWAY_SIM_TEAMS": "1",
        "CAUSEWAY_SIM_MEMORY_MODEL": "discrete",
    },
    "no compiler": {},
}


@pytest.fixture(params=CHIPS)
def chip(request, run_python, tmp_path: Path):
    (tmp_path / "torchvision").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "torchvision" / name).write_text(text)

    def run(program: str, **variables: str) -> str:
        given = {"CAUSEWAY_SIM_OPS": "none", "PYTHONPATH": str(tmp_path)}
        given |= CHIPS[request.param] | variables
        return run_python(DEFINED + textwrap.dedent(program), **given).stdout

    return run


@pytest.fixture
def rung(request) -> str:
    return "host" if "no compiler" in request.node.name else "portable"


def test_the_boxes_that_are_kept(chip, rung) -> None:
    program = """
        def compare(n, threshold):
            b, scores = boxes(n), torch.rand(n, generator=pick).mul(9).round()
            found = ops.nms(b.to(device), scores.to(device), threshold)
            assert torch.equal(found.cpu(), best(b, scores, threshold)), (n, threshold)
        with causeway.ledger() as ledger:
            for n in (1, 63, 64, 65, 200):
                for threshold in (0.0, 0.3, 0.99):
                    compare(n, threshold)
        # Two share a half, two have no area.
        same = torch.tensor([[0., 0, 2, 2], [0, 0, 2, 1], [5, 5, 5, 5], [5, 5, 5, 5]])
        down = torch.arange(4, 0, -1.0, device=device)
        for threshold, kept in ((0.5, [0, 1, 2, 3]), (0.49, [0, 2, 3])):
            assert ops.nms(same.to(device), down, threshold).tolist() == kept
        b = boxes(300, dtype=torch.float64).to(device).t().contiguous().t()
        scores = torch.rand(600, generator=pick, dtype=torch.float64).to(device)[::2]
        assert torch.equal(ops.nms(b, scores, 0.2).cpu(), best(b.cpu(), scores.cpu(), 0.2))
        print(rungs(ledger))
    """
    assert chip(program) == f"['nms {rung}']\n"


def test_no_boxes_and_wrong_ones(chip) -> None:
    program = """
        none = ops.nms(torch.empty(0, 4, device=device), torch.empty(0, device=device), 0.5)
        print(none.shape, none.dtype, none.device.type)
        for b, s in ((boxes(3), torch.ones(2)), (boxes(3)[:, :3], torch.ones(3)),
                     (boxes(3), torch.ones(3).double())):
            try: print(ops.nms(b.to(device), s.to(device), 0.5))
            except RuntimeError as error: print(str(error).splitlines()[0])
    """
    none, *errors = chip(program).splitlines()
    assert none == "torch.Size([0]) torch.int64 sim"
    assert [e.partition(",")[0] for e in errors] == [
        "boxes and scores should have as many elements",
        "boxes should have 4 elements in dimension 1",
        "dets should have the same type as scores",
    ]


def test_features_of_regions_and_their_gradient(chip, rung) -> None:
    program = """
        def compare(aligned, ratio, dtype, near):
            images = torch.randn(2, 3, 9, 13, generator=pick).to(dtype)
            number = torch.randint(2, (5, 1), generator=pick)
            rois = torch.cat([number, boxes(5, low=-6.0, dtype=dtype)], 1)  # beyond the edges, too
            given = images.detach().clone().double().requires_grad_()
            right = align(given, rois, 0.5, 2, 3, ratio, aligned)
            ours = images.to(device).requires_grad_()
            found = ops.roi_align(ours, rois.to(device), 0.5, 2, 3, ratio, aligned)
            def same(a, b, atol):
                torch.testing.assert_close(a.detach().cpu().double(), b, rtol=near, atol=atol)
            same(found, right.detach(), near)
            weight = torch.randn(right.shape, generator=pick).to(dtype)
            (right * weight.double()).sum().backward()
            (found * weight.to(device)).sum().backward()
            same(ours.grad, given.grad, 4 * near)
        with causeway.ledger() as ledger:
            for aligned in (False, True):
                for ratio in (-1, 2):
                    compare(aligned, ratio, torch.float32, 1e-4)
                    compare(aligned, ratio, torch.float16, 2e-2)
                    compare(aligned, ratio, torch.float64, 1e-9)
        print(rungs(ledger))
    """
    assert chip(program) == f"['_roi_align_backward {rung}', 'roi_align {rung}']\n"


ONE = pytest.mark.parametrize("chip", ["in turn"], indirect=True)


@ONE
def test_a_region_of_no_image_is_an_error_that_names_it(chip) -> None:
    program = """
        x, rois = torch.ones(2, 1, 4, 4), torch.tensor([[2., 0, 0, 3, 3]])
        try: ops.roi_align(x.to(device), rois.to(device), 1.0, 1, 1, 1, False).cpu()
        except IndexError as error: print(str(error).splitlines()[0])
    """
    assert "index 2 is out of range for a dimension of size 2" in chip(program)


@ONE
def test_autocast_computes_in_float32_as_cudas_does(chip) -> None:
    program = """
        rois = torch.tensor([[0., 0, 0, 3, 3]], device=device)
        with torch.autocast(device.type, dtype=torch.float16):
            half = torch.ones(1, 1, 4, 4, device=device).half()
            print(ops.roi_align(half, rois, 1.0, 1, 1, 1, False).dtype,
                  ops.nms(rois[:, 1:].half(), torch.ones(1, device=device), 0.5).tolist())
    """
    assert chip(program) == "torch.float16 [0]\n"


@ONE
def test_what_is_not_there_says_which_wheel_has_it(chip) -> None:
    program = """
        x = torch.ones(1, 4, 4, 4, device=device)
        try: ops.ps_roi_pool(x, torch.zeros(1, 5, device=device), 1.0, 2, 2)
        except NotImplementedError as error: print(error)
    """
    assert "https://download.pytorch.org/whl/cpu" in chip(program)
