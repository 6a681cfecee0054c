"""LSTM, GRU and RNN with all their flags, forward and backward, against the CPU."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from same import NAME, Gradients, compare, tensors
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import causeway

FLAGS = [
    {"num_layers": layers, "bidirectional": both, "bias": bias, "batch_first": first}
    for layers, both, bias, first in itertools.product(
        (1, 2), (False, True), (True, False), (False, True)
    )
]
KINDS: list[tuple[str, dict[str, Any]]] = [
    *((name, flags) for name in ("LSTM", "GRU", "RNN") for flags in FLAGS),
    *(("RNN", flags | {"nonlinearity": "relu"}) for flags in FLAGS[:4]),
    *(("LSTM", flags | {"proj_size": 2}) for flags in FLAGS),
]
CPU = torch.device("cpu")


def named(kind: tuple[str, dict[str, Any]]) -> str:
    return "-".join([kind[0], *(f"{k}={v}" for k, v in kind[1].items())])


def run(net: torch.nn.Module) -> Any:
    """A function for `compare`: outputs, last states and all gradients."""

    def call(place: torch.device, x: torch.Tensor, lengths: Any, state: Any) -> Any:
        here = copy.deepcopy(net).to(place)
        given = pack_padded_sequence(x, lengths, net.batch_first) if lengths is not None else x
        out, last = here(given, state)
        if lengths is not None:
            out, back = pad_packed_sequence(out, net.batch_first)
            assert back.tolist() == lengths.tolist()
        results = [out, *tensors(last)]
        leaves = [x, *tensors(state), *here.parameters()]
        grads = torch.autograd.grad(results, leaves, [torch.ones_like(r) for r in results])
        return results, Gradients(g.clone() for g in grads)

    return call


def states(net: Any, batch: int, dtype: torch.dtype) -> Any:
    rows = net.num_layers * (2 if net.bidirectional else 1)
    hidden = torch.randn(rows, batch, net.proj_size or net.hidden_size, dtype=dtype)
    if not isinstance(net, torch.nn.LSTM):
        return hidden.requires_grad_()
    cell = torch.randn(rows, batch, net.hidden_size, dtype=dtype)
    return hidden.requires_grad_(), cell.requires_grad_()


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_every_flag_agrees_with_the_cpu(kind: tuple[str, dict[str, Any]], packed: bool) -> None:
    net = getattr(torch.nn, kind[0])(3, 4, **kind[1])
    shape = (2, 5, 3) if net.batch_first else (5, 2, 3)
    x = torch.randn(shape, requires_grad=True)
    lengths = torch.tensor([5, 3]) if packed else None
    verdict = compare(keeping(run(net), lengths), (CPU, x, states(net, 2, torch.float32)))
    assert not verdict.words


def keeping(call: Any, lengths: Any) -> Any:
    """Lengths are numbers for the host."""
    return lambda place, x, state: call(place, x, lengths, state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_other_dtypes_agree_with_the_cpu(name: str, dtype: torch.dtype) -> None:
    net = getattr(torch.nn, name)(3, 4, 2, bidirectional=True).to(dtype)
    x = torch.randn(5, 2, 3, dtype=dtype, requires_grad=True)
    # A fused cell rounds between other steps than the CPU's chain of operators.
    times = 1 if dtype == torch.float64 else 8
    assert not compare(keeping(run(net), None), (CPU, x, states(net, 2, dtype)), times=times).words


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_unsorted_lengths_and_no_batch(name: str) -> None:
    net = getattr(torch.nn, name)(3, 4)

    def unsorted(place: torch.device, x: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, torch.tensor([2, 5, 3]), enforce_sorted=False)
        out, last = copy.deepcopy(net).to(place)(packed)
        return pad_packed_sequence(out)[0], [*tensors(last)]

    assert not compare(unsorted, (CPU, torch.randn(5, 3, 3))).words
    alone = lambda place, x: [*tensors(copy.deepcopy(net).to(place)(x))]  # noqa: E731
    assert not compare(alone, (CPU, torch.randn(5, 3))).words


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_dropout_between_layers_obeys_the_seed_and_stops_in_eval(name: str) -> None:
    net = getattr(torch.nn, name)(3, 8, 2, dropout=0.5)
    ours = copy.deepcopy(net).to(NAME)
    x = torch.randn(5, 2, 3)

    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return ours(x.to(NAME))[0].detach().cpu()

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    net.eval(), ours.eval()
    torch.testing.assert_close(draw(3), net(x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_agree_with_the_cpu(name: str, bias: bool) -> None:
    net = getattr(torch.nn, name)(3, 4, bias=bias)

    def call(place: torch.device, x: torch.Tensor) -> Any:
        here = copy.deepcopy(net).to(place)
        out = [*tensors(here(x))]
        return out, Gradients(
            g.clone()
            for g in torch.autograd.grad(sum(o.sum() for o in out), [x, *here.parameters()])
        )

    assert not compare(call, (CPU, torch.randn(2, 3, requires_grad=True))).words


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_second_derivatives_agree_with_the_cpu(name: str, bias: bool, both: bool) -> None:
    net = getattr(torch.nn, name)(3, 4, 2, bias=bias, bidirectional=both)

    def call(place: torch.device, x: torch.Tensor, state: Any) -> Any:
        here = copy.deepcopy(net).to(place)
        out, last = here(x, state)
        leaves = [x, *tensors(state), *here.parameters()]
        first = torch.autograd.grad(
            out.square().sum() + tensors(last)[-1].sum(),
            leaves,
            create_graph=True,
            retain_graph=True,
        )
        second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        return out, Gradients(g.clone() for g in (*first, *second))

    x = torch.randn(5, 2, 3, requires_grad=True)
    assert not compare(call, (CPU, x, states(net, 2, torch.float32)), times=4).words


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_gradients_of_some_results_and_for_some_inputs(name: str) -> None:
    net = getattr(torch.nn, name)(3, 4)
    net.weight_hh_l0.requires_grad_(False)
    net.bias_ih_l0.requires_grad_(False)

    def call(place: torch.device, x: torch.Tensor, used: str) -> Any:
        here = copy.deepcopy(net).to(place).eval()
        out, last = here(x)
        result = {"output": out, "h": tensors(last)[0], "c": tensors(last)[-1]}[used]
        leaves = [p for p in here.parameters() if p.requires_grad]
        twice = [torch.autograd.grad(result.sum(), leaves, retain_graph=True) for _ in range(2)]
        return result, Gradients(g.clone() for g in (*twice[0], *twice[1]))

    for used in ("output", "h", "c"):
        verdict = compare(
            lambda place, x, used=used: call(place, x, used), (CPU, torch.randn(5, 2, 3))
        )
        assert not verdict.words


def test_an_output_of_lstm_that_was_written_to_is_no_output_for_backward() -> None:
    net = torch.nn.LSTM(3, 4).to(NAME)
    out, _ = net(torch.randn(5, 2, 3, device=NAME))
    out.zero_()
    with pytest.raises(RuntimeError, match="inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("name", ["GRU", "RNN"])
@pytest.mark.parametrize("flags", [{}, {"batch_first": True}, {"bidirectional": True}])
def test_an_output_of_others_may_be_written_to(name: str, flags: dict[str, bool]) -> None:
    net = getattr(torch.nn, name)(3, 4, **flags)

    def call(place: torch.device, x: torch.Tensor) -> Any:
        here = copy.deepcopy(net).to(place)
        out, last = here(x)
        out.mul_(2).add_(1)
        loss = out.square().sum() + last.sum()
        return out, Gradients(g.clone() for g in torch.autograd.grad(loss, [*here.parameters()]))

    assert not compare(call, (CPU, torch.randn(5, 2, 3))).words


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_inference_without_gradients_gives_the_same(name: str) -> None:
    net = getattr(torch.nn, name)(3, 4, 2, bidirectional=True)
    ours, x = copy.deepcopy(net).to(NAME), torch.randn(5, 2, 3)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(ours(x.to(NAME))[0].cpu(), net(x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_functions_of_torch_func_see_each_step(name: str) -> None:
    net = getattr(torch.nn, name)(3, 4)

    def call(place: torch.device, x: torch.Tensor) -> Any:
        here = copy.deepcopy(net).to(place)
        loss = lambda one: here(one)[0].square().sum()  # noqa: E731
        # torch's cell of GRU has no forward derivative, on any device.
        along = [] if name == "GRU" else [torch.func.jvp(loss, (x,), (torch.ones_like(x),))[1]]
        return torch.func.grad(loss)(x).clone(), along

    assert not compare(call, (CPU, torch.randn(5, 2, 3))).words


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_steps_operators_agree_with_the_cpu(dtype: torch.dtype) -> None:
    def call(place: torch.device, gates: torch.Tensor, c: torch.Tensor, grad: torch.Tensor) -> Any:
        gates, h, after = gates.clone(), torch.empty_like(c), torch.empty_like(c)
        torch.ops.causeway.lstm_step(gates, c, h, after)
        results = [gates, h, after]
        for output in (None, grad):
            dc, to = c.clone(), torch.empty_like(gates)
            torch.ops.causeway.lstm_step_backward(gates, c, after, output, grad, dc, to)
            results += [dc, to]
        return results

    rows = [torch.randn(3, n, dtype=dtype) for n in (20, 5, 5)]
    assert not compare(call, (CPU, *rows)).words


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_steps_operators_of_gru_agree_with_the_cpu(dtype: torch.dtype) -> None:
    def call(
        place: torch.device,
        gates: torch.Tensor,
        other: torch.Tensor,
        h: torch.Tensor,
        grad: torch.Tensor,
    ) -> Any:
        gates, after, hidden = gates.clone(), torch.empty_like(h), torch.empty_like(h)
        torch.ops.causeway.gru_step(gates, other, h, after, hidden)
        results = [gates, after, hidden]
        for output in (None, grad):
            dh, to, too = h.clone(), torch.empty_like(gates), torch.empty_like(gates)
            torch.ops.causeway.gru_step_backward(gates, hidden, h, output, dh, to, too)
            results += [dh, to, too]
        return results

    rows = [torch.randn(3, n, dtype=dtype) for n in (15, 15, 5, 5)]
    assert not compare(call, (CPU, *rows)).words


IN_BOTH_DIRECTIONS = pytest.mark.parametrize("reverse", [False, True])
# Rows that fill the items of a kernel, or not; states of whole vectors, and of none.
OF_STATES = pytest.mark.parametrize(("rows", "n"), [(1, 16), (3, 48), (17, 16), (9, 256), (4, 5)])


@IN_BOTH_DIRECTIONS
@OF_STATES
def test_all_steps_of_an_lstm_agree_with_the_cpu(rows: int, n: int, reverse: bool) -> None:
    steps = 4

    def call(
        place: torch.device,
        gates: torch.Tensor,
        weight: torch.Tensor,
        h: torch.Tensor,
        c: torch.Tensor,
        grad: torch.Tensor,
    ) -> Any:
        gates, output, cells = gates.clone(), torch.empty_like(grad), torch.empty_like(grad)
        torch.ops.causeway.lstm_steps(gates, weight, h, c, output, cells, reverse)
        results = [gates, output, cells]
        for of_output in (None, grad):
            dh, dc, to = h.clone(), c.clone(), torch.empty_like(gates)
            given = (gates, weight, c, cells, of_output, dh, dc, to, reverse)
            torch.ops.causeway.lstm_steps_backward(*given)
            results += [dh, dc, to]
        return results

    gates, weight = torch.randn(steps, rows, 4 * n), torch.randn(4 * n, n) / n**0.5
    states = torch.randn(rows, n), torch.randn(rows, n)
    assert not compare(call, (CPU, gates, weight, *states, torch.randn(steps, rows, n))).words


@IN_BOTH_DIRECTIONS
@OF_STATES
@pytest.mark.parametrize("bias", [True, False])
def test_all_steps_of_a_gru_agree_with_the_cpu(
    rows: int, n: int, reverse: bool, bias: bool
) -> None:
    steps = 4

    def call(
        place: torch.device,
        gates: torch.Tensor,
        weight: torch.Tensor,
        added: torch.Tensor,
        h: torch.Tensor,
        grad: torch.Tensor,
    ) -> Any:
        gates, output, hidden_n = gates.clone(), torch.empty_like(grad), torch.empty_like(grad)
        given = added if bias else None
        torch.ops.causeway.gru_steps(gates, weight, given, h, output, hidden_n, reverse)
        results = [gates, output, hidden_n]
        for of_output in (None, grad):
            dh, to, too = h.clone(), torch.empty_like(gates), torch.empty_like(gates)
            torch.ops.causeway.gru_steps_backward(
                gates, weight, hidden_n, h, output, of_output, dh, to, too, reverse
            )
            results += [dh, to, too]
        return results

    gates, weight = torch.randn(steps, rows, 3 * n), torch.randn(3 * n, n) / n**0.5
    rest = torch.randn(3 * n), torch.randn(rows, n), torch.randn(steps, rows, n)
    assert not compare(call, (CPU, gates, weight, *rest)).words


@IN_BOTH_DIRECTIONS
@OF_STATES
@pytest.mark.parametrize("relu", [True, False])
def test_all_steps_of_plain_cells_agree_with_the_cpu(
    rows: int, n: int, reverse: bool, relu: bool
) -> None:
    steps = 4

    def call(
        place: torch.device,
        gates: torch.Tensor,
        weight: torch.Tensor,
        h: torch.Tensor,
        grad: torch.Tensor,
    ) -> Any:
        output = torch.empty_like(grad)
        torch.ops.causeway.rnn_steps(gates.clone(), weight, h, output, relu, reverse)
        results = [output]
        for of_output in (None, grad):
            dh, to = h.clone(), torch.empty_like(gates)
            torch.ops.causeway.rnn_steps_backward(output, weight, of_output, dh, to, relu, reverse)
            results += [dh, to]
        return results

    gates, weight = torch.randn(steps, rows, n), torch.randn(n, n) / n**0.5
    rest = torch.randn(rows, n), torch.randn(steps, rows, n)
    assert not compare(call, (CPU, gates, weight, *rest)).words


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_layers_whose_state_is_whole_vectors_agree_with_the_cpu(name: str) -> None:
    """What is one kernel on CPUs, within layers of both directions."""
    for bias, kind in itertools.product((True, False), ("tanh", "relu")):
        flags = {"nonlinearity": kind} if name == "RNN" else {}
        net = getattr(torch.nn, name)(3, 16, 2, bias=bias, bidirectional=True, **flags)
        x = torch.randn(5, 3, 3, requires_grad=True)
        state = states(net, 3, torch.float32)
        assert not compare(keeping(run(net), None), (CPU, x, state)).words


STEP = {"LSTM": "causeway::lstm_step", "GRU": "causeway::gru_step", "RNN": "tanh"}


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_a_layer_is_no_chain_of_operators(name: str) -> None:
    """One call of the host for a layer, or a product and a kernel for each step."""
    net = getattr(torch.nn, name)(3, 4, 2).to(NAME)
    x = torch.randn(5, 2, 3, device=NAME)
    with causeway.ledger() as ledger:
        net(x)[0].sum().backward()
    calls = Counter[str]()
    for row in ledger.rows:
        calls[row.operator.removeprefix("aten::")] += row.calls
    step = STEP[name]
    if calls["mkldnn_rnn_layer"]:
        assert calls["mkldnn_rnn_layer"] == calls["mkldnn_rnn_layer_backward"] == 2
        assert sum(calls.values()) < 60
    elif calls[step] or calls[f"{step}.out"]:
        assert calls[step] + calls[f"{step}.out"] == 2 * 5
        assert calls[f"{step}_backward"] + calls[f"{step}_backward.grad_input"] == 2 * 5
        assert sum(calls[product] for product in ("addmm_", "addmm.out")) >= 2 * 5
        assert not calls["sigmoid"]
    else:
        pytest.skip("the vendor has products and no kernel for a step")


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_a_layer_whose_state_is_whole_vectors_is_a_kernel_on_cpus(name: str) -> None:
    """Where the chip has a compiler and its items are threads of a CPU."""
    net = getattr(torch.nn, name)(3, 16, bidirectional=True).to(NAME)
    with causeway.ledger() as ledger:
        net(torch.randn(5, 2, 3, device=NAME))[0].sum().backward()
    rows = {row.operator: (row.calls, row.rung) for row in ledger.rows}
    operator, step = f"causeway::{name.lower()}_steps", STEP[name]
    if operator not in rows:
        assert rows.get(step, (10,))[0] == 10
        pytest.skip("a layer is a kernel for each step here, or the vendor's or the host's")
    for each in (operator, f"{operator}_backward"):
        assert rows[each] == (2, "portable")
    assert not {step, f"aten::{step}.out"} & rows.keys()


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_cell_is_one_kernel_after_its_products(name: str) -> None:
    net = getattr(torch.nn, f"{name}Cell")(3, 4).to(NAME)
    x = torch.randn(2, 3, device=NAME)
    with causeway.ledger() as ledger:
        sum(t.sum() for t in tensors(net(x))).backward()
    calls = {row.operator: row.calls for row in ledger.rows}
    if "aten::sigmoid_" in calls:
        pytest.skip("the vendor has products and no kernel for a step")
    assert calls[STEP[name]] == calls[f"{STEP[name]}_backward"] == 1


def test_a_step_of_sizes_that_do_not_fit_writes_nowhere_else() -> None:
    gates, c = torch.zeros(3, 20, device=NAME), torch.zeros(3, 5, device=NAME)
    narrow = torch.zeros(3, 2, device=NAME)
    with pytest.raises(RuntimeError):
        torch.ops.causeway.lstm_step(gates, narrow, c.clone(), c.clone())
    with pytest.raises(RuntimeError):
        torch.ops.causeway.lstm_step(gates, c, narrow, c.clone())
    with pytest.raises(RuntimeError):
        torch.ops.causeway.lstm_step_backward(gates, c, c, None, c, c.clone(), narrow)
    wide, weight = torch.zeros(2, 3, 64, device=NAME), torch.zeros(64, 16, device=NAME)
    state, each = torch.zeros(3, 16, device=NAME), torch.zeros(2, 3, 16, device=NAME)
    for i, wrong in (
        (1, weight[:48]),
        (2, state[:2]),
        (3, state[:, :8]),
        (4, each[:1]),
        (5, each[:, :2]),
    ):
        given = [wide.clone(), weight, state, state, each, each.clone()]
        given[i] = wrong.contiguous()
        with pytest.raises(RuntimeError):
            torch.ops.causeway.lstm_steps(*given, False)
    for i, wrong in (
        (3, each[:1]),
        (4, each[:, :2]),
        (5, state[:2]),
        (6, state[:2]),
        (7, wide[:1]),
    ):
        given = [wide, weight, state, each, each, state.clone(), state.clone(), wide.clone()]
        given[i] = wrong.contiguous()
        with pytest.raises(RuntimeError):
            torch.ops.causeway.lstm_steps_backward(*given, False)
    many = torch.zeros(2, 3, 48, device=NAME)
    rows = weight[:48].contiguous()
    for i, wrong in ((1, weight), (2, state[0]), (3, state[:2]), (4, each[:1]), (5, each[:, :2])):
        given = [many.clone(), rows, None, state, each.clone(), each.clone()]
        given[i] = wrong.contiguous()
        with pytest.raises(RuntimeError):
            torch.ops.causeway.gru_steps(*given, False)
    for i, wrong in (
        (2, each[:1]),
        (3, state[:2]),
        (4, each[:1]),
        (5, each[:, :2]),
        (6, state[:2]),
        (7, many[:1]),
        (8, wide),
    ):
        given = [many, rows, each, state, each, each, state.clone(), many.clone(), many.clone()]
        given[i] = wrong.contiguous()
        with pytest.raises(RuntimeError):
            torch.ops.causeway.gru_steps_backward(*given, False)
    square = weight[:16].contiguous()
    for i, wrong in ((1, weight), (2, state[:2]), (3, each[:1])):
        given = [each.clone(), square, state, each.clone()]
        given[i] = wrong.contiguous()
        with pytest.raises(RuntimeError):
            torch.ops.causeway.rnn_steps(*given, True, False)
    for i, wrong in ((2, each[:, :2]), (3, state[:2]), (4, each[:1])):
        given = [each, square, each, state.clone(), each.clone()]
        given[i] = wrong.contiguous()
        with pytest.raises(RuntimeError):
            torch.ops.causeway.rnn_steps_backward(*given, True, False)
    with pytest.raises(RuntimeError):
        torch.ops.causeway.gru_step(gates[:, :15].clone(), gates, c, c.clone(), c.clone())
    with pytest.raises(RuntimeError):
        torch.ops.causeway.gru_step_backward(
            gates[:, :15].clone(), narrow, c, None, c.clone(), gates[:, :15].clone(), gates
        )


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh"])
def test_a_state_of_another_batch_is_refused(name: str) -> None:
    net = getattr(torch.nn, name.partition("_")[0].upper())(3, 4).to(NAME)
    state, x = torch.zeros(1, 3, 4, device=NAME), torch.zeros(5, 2, 3, device=NAME)
    states = (state, state) if name == "lstm" else state
    with pytest.raises(RuntimeError):
        net(x, states)
    with pytest.raises(RuntimeError):
        getattr(torch, name)(x, states, [*net.parameters()], True, 1, 0.0, True, False, False)
