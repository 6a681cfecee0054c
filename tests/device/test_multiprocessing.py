"""Tensors sent to other processes are shared, not copied."""

import gc
import time

import pytest
import torch
import torch.multiprocessing as mp


@pytest.fixture(scope="module")
def spawn():
    return mp.get_context("spawn")


@pytest.fixture
def ipc(has_ipc):
    if not has_ipc:
        pytest.skip("the vendor has no ipc.v1")


def _double(queue, answers):
    tensors = queue.get()
    for tensor in tensors:
        tensor *= 2
    torch.accelerator.synchronize()
    answers.put([(str(t.device), t.tolist(), t.storage_offset()) for t in tensors])
    queue.get()  # until the parent has looked


def _start(spawn, target, *args):
    process = spawn.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def _end(process):
    process.join(60)
    assert process.exitcode == 0


def test_queue_shares_memory_and_views_keep_their_offset(ipc, spawn, device):
    queue, answers = spawn.Queue(), spawn.Queue()
    process = _start(spawn, _double, queue, answers)
    x = torch.arange(8.0, device=device)
    view = x[4:6]
    queue.put([view])
    seen = answers.get(timeout=60)
    torch.accelerator.synchronize()
    assert seen == [(str(device), [8.0, 10.0], 4)]
    assert x.tolist() == [0, 1, 2, 3, 8, 10, 6, 7], "the child wrote into the same memory"
    queue.put(None)
    _end(process)
    assert view.tolist() == [8.0, 10.0]


def test_tensors_that_share_a_storage_share_it_again(ipc, spawn, device):
    queue, answers = spawn.Queue(), spawn.Queue()
    process = _start(spawn, _double, queue, answers)
    x = torch.ones(4, device=device)
    queue.put([x, x[1:]])
    seen = answers.get(timeout=60)
    assert [values for _, values, _ in seen] == [[2.0, 4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    queue.put(None)
    _end(process)


def _train(net, steps, done):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(1, 2, device=net.weight.device)).sum().backward()
        optimizer.step()
    torch.accelerator.synchronize()
    done.put([type(p).__name__ for p in net.parameters()])


def test_a_model_is_trained_in_place_by_a_child(ipc, spawn, device):
    net = torch.nn.Linear(2, 1).to(device)
    net.share_memory()
    before = net.weight.detach().clone()
    done = spawn.Queue()
    process = _start(spawn, _train, net, 4, done)
    assert done.get(timeout=60) == ["Parameter", "Parameter"]
    _end(process)
    torch.accelerator.synchronize()
    torch.testing.assert_close(net.weight.detach().cpu(), before.cpu() - 2.0)


def _read(queue, answers):
    while (tensor := queue.get()) is not None:
        answers.put(tensor.sum().item())
        del tensor


def test_memory_is_not_reused_before_the_receiver_lets_go(ipc, spawn, device, module):
    queue, answers = spawn.Queue(), spawn.Queue()
    process = _start(spawn, _read, queue, answers)
    for value in range(5):
        queue.put(torch.full((1000,), float(value), device=device))
        time.sleep(0.05)
        torch.full((1000,), -1.0, device=device)  # would fall on memory that was free
        assert answers.get(timeout=60) == 1000 * value
    queue.put(None)
    _end(process)
    gc.collect()
    module.ipc_collect()
    from causeway.device import ipc as sharing

    assert not sharing._kept


def _make(answers, wait):
    answers.put(torch.full((10,), 3.0, device=torch.accelerator.current_accelerator()))
    wait.get()


def test_memory_of_a_child_comes_to_the_parent(ipc, spawn, name):
    answers, wait = spawn.Queue(), spawn.Queue()
    process = _start(spawn, _make, answers, wait)
    x = answers.get(timeout=60)
    assert x.device.type == name
    assert x.tolist() == [3.0] * 10
    wait.put(None)
    _end(process)
    assert x.tolist() == [3.0] * 10, "it stays valid when its maker ends"


def _forward(queue, answers):
    x = queue.get()
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(x)
    except RuntimeError as error:
        answers.put(str(error))
    else:
        answers.put("sent")


def test_received_tensor_cannot_be_sent_on(ipc, spawn, device):
    queue, answers = spawn.Queue(), spawn.Queue()
    process = _start(spawn, _forward, queue, answers)
    x = torch.ones(2, device=device)
    queue.put(x)
    assert "clone" in answers.get(timeout=60)
    _end(process)


def test_same_process_gets_the_same_memory(ipc, device):
    from multiprocessing.reduction import ForkingPickler

    x = torch.ones(4, device=device)
    y = ForkingPickler.loads(ForkingPickler.dumps(x[1:]))
    y.zero_()
    assert x.tolist() == [1.0, 0.0, 0.0, 0.0]
    empty = ForkingPickler.loads(ForkingPickler.dumps(x[:0].clone()))
    assert empty.device == device


def test_cpu_tensors_go_torchs_way(spawn):
    from multiprocessing.reduction import ForkingPickler

    x = torch.ones(4)
    y = ForkingPickler.loads(ForkingPickler.dumps(x))
    y.zero_()
    assert x.tolist() == [0.0] * 4


def test_without_ipc_the_error_is_clear(has_ipc, device):
    from multiprocessing.reduction import ForkingPickler

    if has_ipc:
        pytest.skip("the vendor has ipc.v1")
    with pytest.raises(RuntimeError, match=r"ipc\.v1"):
        ForkingPickler.dumps(torch.ones(4, device=device))


def test_gradient_that_is_no_leaf_is_refused_as_torch_does(device):
    from multiprocessing.reduction import ForkingPickler

    x = torch.ones(2, device=device, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf"):
        ForkingPickler.dumps(x)
