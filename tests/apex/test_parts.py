"""apex's norms, parallel, fp16_utils, multi_tensor_apply and small modules, and `import apex`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from causeway.apex import fp16_utils, fused_dense, mlp, normalization, parallel
from causeway.apex.contrib.xentropy import SoftmaxCrossEntropyLoss
from causeway.apex.multi_tensor_apply import amp_C, multi_tensor_applier

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_norms_are_torchs_and_mixed_ones_give_the_weights_dtype(where, dtype):
    x = torch.randn(4, 6).to(where, dtype)
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype != torch.float32 else {}
    for kind, mixed, plain in (
        (normalization.FusedLayerNorm, normalization.MixedFusedLayerNorm, F.layer_norm),
        (normalization.FusedRMSNorm, normalization.MixedFusedRMSNorm, F.rms_norm),
    ):
        expected = plain(x.float(), (6,), eps=1e-5)
        for affine in (True, False):
            found = kind(6, elementwise_affine=affine).to(where)(x)
            assert found.dtype == dtype
            torch.testing.assert_close(found.float(), expected, **close)
        norm = mixed((6,)).to(where)
        found = norm(x)
        assert found.dtype == torch.float32
        found.sum().backward()
        assert norm.weight.grad.dtype == torch.float32
        assert isinstance(kind(6), nn.LayerNorm | nn.RMSNorm)


def test_batch_norms_become_synchronized_ones_with_their_weights(where):
    net: Any = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Sequential(nn.BatchNorm2d(3)))
    x = torch.randn(4, 1, 6, 6)
    with torch.no_grad():
        net[1][0].weight.uniform_()
    net(x)
    expected = net.eval()(x)
    weight, keys = net[1][0].weight, list(net.state_dict())
    converted: Any = parallel.convert_syncbn_model(net)
    assert isinstance(converted[1][0], parallel.SyncBatchNorm)
    assert converted[1][0].weight is weight
    assert list(converted.state_dict()) == keys
    converted = converted.to(where)
    torch.testing.assert_close(converted(x.to(where)).cpu(), expected, rtol=1e-4, atol=1e-5)
    converted.train()(x.to(where)).sum().backward()
    last = parallel.SyncBatchNorm(3, channel_last=True, fuse_relu=True).to(where)
    y = last(torch.randn(4, 6, 6, 3).to(where))
    assert y.shape == (4, 6, 6, 3)
    assert (y >= 0).all()
    assert last.num_batches_tracked.item() == 1


def test_kernels_over_lists_of_tensors(where):
    flag = torch.zeros(1, dtype=torch.int32, device=where)
    a = [torch.full((2, 2), 3.0, device=where), torch.full((3,), 2.0, device=where)]
    out = [torch.empty_like(t, dtype=torch.float16) for t in a]
    multi_tensor_applier(amp_C.multi_tensor_scale, flag, [a, out], 0.5)
    assert [t.unique().tolist() for t in out] == [[1.5], [1.0]]
    multi_tensor_applier(amp_C.multi_tensor_axpby, flag, [a, a, out], 1.0, 2.0, -1)
    assert [t.unique().tolist() for t in out] == [[9.0], [6.0]]
    total, each = multi_tensor_applier(amp_C.multi_tensor_l2norm, flag, [a], True)
    assert total.tolist() == pytest.approx([48**0.5])
    assert each.tolist() == pytest.approx([6.0, 12**0.5])
    assert flag.item() == 0
    a[1][1] = float("nan")
    multi_tensor_applier(amp_C.multi_tensor_scale, flag, [a, out], 0.5)
    assert flag.item() == 1


def test_fp16_optimizer_trains_skips_and_resumes(where):
    torch.manual_seed(0)
    net = fp16_utils.FP16Model(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))).to(where)
    assert net.network[1].weight.dtype == torch.float32
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    args = {"init_scale": 128.0}
    optimizer = fp16_utils.FP16_Optimizer(
        inner, dynamic_loss_scale=True, dynamic_loss_args=args, verbose=False
    )
    x, y = torch.randn(8, 4, device=where), torch.randn(8, 4, device=where)
    found = []
    for step in range(10):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x).float(), y)
        before = net.network[0].weight.detach().clone()
        optimizer.backward(loss * (float("inf") if step == 3 else 1.0))
        optimizer.clip_master_grads(10.0)
        optimizer.step()
        assert torch.equal(before, net.network[0].weight) == (step == 3)
        found.append(loss.item())
    assert found[-1] < found[0]
    assert optimizer.loss_scale == 64.0
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    params, masters = fp16_utils.prep_param_lists(net)
    net(x).float().sum().backward()
    fp16_utils.model_grads_to_master_grads(params, masters)
    assert all(m.grad.dtype == torch.float32 for m in masters)
    fp16_utils.master_params_to_model_params(params, masters)


def test_small_modules_compute_what_they_say(where):
    torch.manual_seed(0)
    x = torch.randn(4, 6, device=where)
    net = mlp.MLP([6, 5, 3]).to(where)
    expected = F.linear(F.linear(x, net.weight_0, net.bias_0).relu(), net.weight_1, net.bias_1)
    assert torch.equal(net(x), expected.relu())
    dense = fused_dense.FusedDenseGeluDense(6, 5, 3).to(where)
    assert dense(x).shape == (4, 3)
    assert set(dense.state_dict()) == {"weight1", "bias1", "weight2", "bias2"}
    labels = torch.tensor([0, 1, 2, 3], device=where)
    found = SoftmaxCrossEntropyLoss.apply(x.half(), labels, 0.1, 0, True)
    expected = F.cross_entropy(x.half().float(), labels, reduction="none", label_smoothing=0.1)
    assert found[0].item() == 0
    assert torch.equal(found[1:], expected[1:])


# --- by name --------------------------------------------------------------------------------------

BY_NAME = """
import causeway.apex
causeway.apex.install()
causeway.apex.install()  # twice is once
import apex, apex.amp, amp_C
from apex.optimizers import FusedAdam
from apex.normalization.fused_layer_norm import FusedLayerNorm
from apex.contrib.clip_grad import clip_grad_norm_
assert apex.amp is causeway.apex.amp and apex.__spec__.name == "causeway.apex"
assert FusedAdam is causeway.apex.optimizers.FusedAdam
import apex.contrib.clip_grad, causeway.apex.contrib.clip_grad, sys
assert apex.contrib.clip_grad is causeway.apex.contrib.clip_grad
assert not [n for n in sys.modules if n.startswith("apex") and sys.modules[n].__name__ == n]
try:
    import apex.transformer
except ModuleNotFoundError as error:
    assert "docs/amp.md" in str(error)
import importlib.util
assert importlib.util.find_spec("apex") is not None
causeway.apex.uninstall()
try:
    import apex.mlp
except ModuleNotFoundError:
    print("gone")
"""


@pytest.mark.once
def test_apex_can_be_imported_by_its_own_name_on_request(run_python):
    assert run_python(BY_NAME).stdout == "gone\n"
    code = "import torch, apex.amp; print(apex.amp.__name__)"
    assert run_python(code, CAUSEWAY_APEX="1").stdout == "causeway.apex.amp\n"


@pytest.mark.once
def test_another_apex_is_never_shadowed(run_python, tmp_path):
    (tmp_path / "apex.py").write_text("mine = True\n")
    code = """
import torch, causeway.apex, apex
assert apex.mine
try:
    causeway.apex.install()
except causeway.CausewayError as error:
    print("refused" if "not shadowed" in str(error) or "another apex" in str(error) else error)
assert apex.mine
"""
    done = run_python(code, PYTHONPATH=str(tmp_path))
    assert done.stdout == "refused\n"
    code = "import torch, apex; print(apex.mine)"
    done = run_python(code, PYTHONPATH=str(tmp_path), CAUSEWAY_APEX="1")
    assert done.stdout == "True\n"
    assert "another apex is installed" in done.stderr


# --- processes ------------------------------------------------------------------------------------

TWO = """
import sys
import time
import torch
from torch import nn
from torch.nn import functional as F
from causeway.apex import amp, parallel

rank, port = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://localhost:{port}", world_size=2, rank=rank)
x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
mine = x[4 * rank : 4 * rank + 4]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.sometimes, self.never = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, extra=False):
        return self.sometimes(self.layer(x)) if extra else self.layer(x)

def net():
    torch.manual_seed(0)
    return Net()

def step(model, optimizer, x, extra=False, twice=False):
    optimizer.zero_grad()
    for sign in (1.0, -0.5) if twice else (1.0,):
        loss = F.mse_loss(sign * model(x, extra).float(), torch.ones(len(x), 4))
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
    optimizer.step()

def trained(wrap, part, twice=False, **options):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    model, optimizer = amp.initialize(
        model, optimizer, opt_level="O2", loss_scale=16.0, verbosity=0, **options)
    wrapped = wrap(model)
    for _ in range(3):
        step(wrapped, optimizer, part, twice=twice)
    found = [p.clone() for p in amp.master_params(optimizer)]
    amp.deactivate()
    return found

alone = trained(lambda m: m, x)
for wrap, options in (
    (lambda m: parallel.DistributedDataParallel(m, delay_allreduce=True), {}),
    (lambda m: parallel.DistributedDataParallel(
        m, delay_allreduce=True, allreduce_always_fp32=True, gradient_predivide_factor=2.0), {}),
    (lambda m: m, {"combine_ddp": True}),
):
    for a, b in zip(trained(wrap, mine, **options), alone):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)

# Gradients that accumulate in DistributedDataParallel's own buckets.
def buckets(m):
    return nn.parallel.DistributedDataParallel(
        m, gradient_as_bucket_view=True, find_unused_parameters=True)

expected = trained(lambda m: m, x, twice=True, master_weights=False, cast_model_type=torch.float32)
found = trained(buckets, mine, twice=True, master_weights=False, cast_model_type=torch.float32)
for a, b in zip(found, expected):
    torch.testing.assert_close(a, b)

# A parameter that only one process used is the same everywhere, one that none used has no gradient.
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1", verbosity=0, combine_ddp=True)
step(model, optimizer, mine, extra=rank == 0)
assert model.sometimes.weight.grad.abs().sum() > 0 and model.never.weight.grad is None
weights = [torch.empty(4, 4) for _ in range(2)]
own = model.sometimes.weight.detach()
torch.distributed.all_gather(weights, own)
assert torch.equal(*weights)
# A thread of gloo's lets go of the collective's tensors some time after it, with Python's lock.
# Where Python ends meanwhile the process aborts, also with torch alone, whose
# DistributedDataParallel keeps gloo's threads alive.
while own._use_count() > 1:
    time.sleep(0.01)
time.sleep(0.2)
print("same")
torch.distributed.destroy_process_group()
"""


@pytest.mark.once
@pytest.mark.slow
def test_gradients_are_averaged_over_processes(run_python):
    from concurrent.futures import ThreadPoolExecutor

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(run_python, TWO, args=(str(rank), port)) for rank in range(2)]
        assert [run.result().stdout for run in runs] == ["same\n"] * 2
