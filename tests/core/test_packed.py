"""Tensors in the chip's own layout: made when it pays, never used once they are out of date, and no
burden to anybody. The CPU has the right numbers; the simulated chip's are the same bits with a form
and without, so a stale form shows.
"""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import torch, causeway
def stats(): return torch.sim.layout_stats()
def used():
    before = stats()["used"]
    yield_ = x @ w
    return stats()["used"] - before
def right(w):
    for _ in range(4):
        y = x @ w
    torch.testing.assert_close(y.cpu(), x.cpu() @ w.cpu(), rtol=1e-4, atol=1e-4)
torch.manual_seed(0)
x = torch.randn(3, 70, device="sim")
def weight(): return torch.randn(70, 90, device="sim")
w = weight()
"""


@pytest.fixture
def chip(run):
    def of(code: str, head: str = HEAD, **env: str) -> str:
        return run(head + textwrap.dedent(code), **{"ops": "all"} | env)

    return of


def test_the_second_use_converts_and_later_ones_use_it(chip) -> None:
    program = """
        a = x @ w
        assert stats()["converted"] == 0 and stats()["kept"] == 0
        before = torch.sim.memory_allocated()
        b = x @ w
        assert (stats()["converted"], stats()["kept"], stats()["used"]) == (1, 1, 0)
        assert stats()["bytes"] == 70 * 96 * 4
        assert torch.sim.memory_allocated() - before >= stats()["bytes"]
        c, d = x @ w, torch.addmm(torch.zeros(90, device="sim"), x, w)
        assert (stats()["converted"], stats()["used"]) == (1, 2)
        assert torch.equal(a, b) and torch.equal(a, c) and torch.equal(a, d)
        del w
        assert stats()["kept"] == stats()["bytes"] == 0
    """
    assert chip(program) == ""
    assert chip(program, execution="async") == ""
    assert chip(program, memory_model="discrete") == ""


def test_views_dtypes_and_shapes_have_forms_of_their_own(chip) -> None:
    program = """
        F = torch.nn.functional
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            for m, k, n in ((1, 64, 64), (5, 300, 40), (70, 33, 257), (2, 1, 3000), (3, 600, 600)):
                base = torch.randn(n + 3, k + 5, device="sim").to(dtype)
                x = torch.randn(m, k, device="sim").to(dtype)
                views = base[:n, :k], base[3:, 5:], base.t()[:k, :n].t()
                for w in views:
                    first = F.linear(x, w)
                    for _ in range(3):
                        assert torch.equal(F.linear(x, w), first), (dtype, m, k, n)
                    other = w.t().contiguous()
                    assert torch.equal(x @ other, first)
        assert stats()["converted"] >= 40 and stats()["used"] >= 80, stats()
        before = stats()["converted"]
        whole = torch.ones(64, 64, dtype=torch.int64, device="sim")
        for _ in range(4):
            whole @ whole
        assert stats()["converted"] == before
    """
    assert chip(program) == ""


# Each writes to `w`, or puts another in its place; a program of its own would cost a second.
WRITES = {
    "in place": "w.add_(1)",
    "data": "w.data.add_(1)",
    "detach": "w.detach().mul_(2)",
    "a view": "w[3:5].zero_()",
    "a transposed view": "w.t()[7].fill_(3.0)",
    "out": "torch.mul(w, 2.0, out=w)",
    "from the host": "w.copy_(torch.randn(70, 90))",
    "in the background": "w.copy_(torch.randn(70, 90).pin_memory(), non_blocking=True)",
    "from the device": "w.copy_(weight())",
    "an index": "w[torch.tensor([1, 2], device='sim')] = 5.0",
    "the host rung": "causeway.policy('allow'); w.erfinv_().nan_to_num_(0.5, 1.0, -1.0)",
    "random": "w.normal_()",
    "set_": "w.set_(weight())",
    "data is another": "w.data = weight()",
    "resize": "w.resize_(0); w.resize_(70, 90).copy_(weight())",
    "its storage grows": """
w.untyped_storage().resize_(0)
w.untyped_storage().resize_(70 * 90 * 4)
w.fill_(2.0)""",
    "its storage is copied to": "w.untyped_storage().copy_(weight().untyped_storage())",
    "its storage is filled": "w.untyped_storage().fill_(0)",
    "swapped": "torch.utils.swap_tensors(w, weight())",
    "over lists": "torch._foreach_add_([w, weight()], 1.0)",
    "SGD": """
w.requires_grad_()
w.grad = weight()
torch.optim.SGD([w], 0.1).step()
w = w.detach()""",
    "AdamW": """
w.requires_grad_()
w.grad = weight()
torch.optim.AdamW([w], 0.1, fused=True).step()
w = w.detach()""",
    "a state dict": """
m = torch.nn.Linear(70, 90, bias=False, device="sim")
w = m.weight.data.t()
right(w)
m.load_state_dict({"weight": torch.randn(90, 70)})""",
    "another stream": """
s = torch.sim.Stream()
s.wait_stream(torch.sim.current_stream())
with torch.sim.stream(s):
    w.mul_(3)
torch.sim.current_stream().wait_stream(s)""",
    "another thread": """
import threading
t = threading.Thread(target=lambda: w.mul_(3))
t.start(); t.join()""",
    "DLPack": """
other = torch.from_dlpack(w)
right(w)
other.mul_(3)
right(w)""",
    "DLPack that was exported before": """
w = weight()
other = torch.from_dlpack(w)
for _ in range(4): x @ w
other.mul_(3)""",
    "a lazy clone": """
other = torch._lazy_clone(w)
right(w), right(other)
other.mul_(3)
right(other)
w.mul_(2)""",
    "the original of a lazy clone": """
other = torch._lazy_clone(w)
w.mul_(2)
right(other)
other.mul_(5)
right(other)""",
    "a replay": """
g = torch.sim.CUDAGraph()
v = weight()
with torch.sim.graph(g):
    v.mul_(1.5)
w = v
for _ in range(3):
    right(w)
    g.replay()""",
    "a replay that reads": """
out = x @ w
g = torch.sim.CUDAGraph()
with torch.sim.graph(g):
    out = x @ w
w.mul_(2)
g.replay()
torch.testing.assert_close(out.cpu(), x.cpu() @ w.cpu(), rtol=1e-4, atol=1e-4)""",
    "batch norm's statistics": """
m = torch.nn.BatchNorm1d(6300, device="sim")
w = m.running_var.view(70, 90)
for _ in range(3):
    right(w)
    m(torch.randn(8, 6300, device="sim"))""",
}


@pytest.mark.parametrize("env", [{}, {"execution": "async", "memory_model": "discrete"}], ids=str)
def test_no_write_goes_unnoticed(chip, env) -> None:
    body = "import warnings; warnings.simplefilter('ignore')\n"
    for name, code in WRITES.items():
        body += f"w = weight(); x @ w; x @ w\nassert used() == 1, {name!r}\n"
        body += f"{code.strip()}\ntry:\n    right(w)\nexcept BaseException as e:\n"
        body += f"    raise AssertionError({name!r}) from e\n"
    assert chip(HEAD + body, head="", **env) == ""


# --- graphs ---------------------------------------------------------------------------------------

CAPTURE = """
def capture(f, warm):
    for _ in range(warm): f()
    g = torch.sim.CUDAGraph()
    with torch.sim.graph(g):
        out = f()
    return g, out
def f(): return x @ w, (x + 1) @ w, x * 2
def replays(n=1):
    for _ in range(n):
        g.replay()
        for got, given in zip(out, (x, x + 1)):
            want = given.cpu() @ w.cpu()
            torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)
"""
SET_UPS = [
    {"memory_model": memory, "execution": execution, "CAUSEWAY_SIM_GRAPHS": graphs}
    for memory in ("unified", "discrete") for execution in ("inline", "async") for graphs in "01"
]  # fmt: skip


@pytest.mark.parametrize("env", SET_UPS, ids=lambda env: "-".join(env.values()))
def test_a_graph_uses_the_forms_that_there_are_and_no_stale_one(chip, env) -> None:
    whole = env["CAUSEWAY_SIM_GRAPHS"] == "1"  # the vendor notes what the kernels are given
    writes = {
        "in place": "w.add_(1)",
        "data": "w.data.mul_(-1)",
        "a view": "w[3:5].zero_()",
        "from the host": "w.copy_(torch.randn(70, 90))",
        "another stream": """
s = torch.sim.Stream()
s.wait_stream(torch.sim.current_stream())
with torch.sim.stream(s): w.mul_(3)
torch.sim.current_stream().wait_stream(s)""",
        "another graph": """
other, _ = capture(lambda: (w.mul_(1.5), w.add_(1), w.sub_(0.5)), 0)
for _ in range(3):
    other.replay()
    replays()""",
    }
    program = f"""
        g, out = capture(f, 3)
        assert g._graph.of_vendor() == {4 if whole else 0}
        before = stats()
        replays(4)
        after = stats()
        assert after["converted"] == before["converted"] == after["kept"] == 1, after
        assert after["used"] - before["used"] == {0 if whole else 8}
        for name, write in {writes!r}.items():
            w = weight()
            g, out = capture(f, 3)
            assert stats()["kept"] >= 1, (name, stats())
            first = g, out
            exec(write)
            try:
                g, out = first
                replays(4)
            except BaseException as error:
                raise AssertionError(name) from error
    """
    assert chip(CAPTURE + textwrap.dedent(program), **env) == ""


@pytest.mark.parametrize("graphs", ["0", "1"])
def test_a_pointer_that_is_given_away_ends_what_a_graph_uses(chip, graphs) -> None:
    program = """
        import ctypes
        g, out = capture(f, 3)
        replays(2)
        pointer = w.data_ptr()
        replays(2)
        for byte in (0, 1, 2):
            torch.sim.synchronize()
            ctypes.memset(pointer, byte, 4 * 900)
            replays(1)
        assert stats()["kept"] == 0, stats()
        torch.sim.allow_layouts(w)
        replays(5)
        assert stats()["kept"] == 1, stats()
    """
    assert chip(CAPTURE + textwrap.dedent(program), CAUSEWAY_SIM_GRAPHS=graphs) == ""


@pytest.mark.parametrize("env", SET_UPS[-2:], ids=lambda env: "-".join(env.values()))
def test_replays_convert_what_no_capture_could(chip, env) -> None:
    program = """
        g, out = capture(f, 0)
        assert stats()["converted"] == 0
        replays(5)
        assert stats()["converted"] == stats()["kept"] == 1, stats()
        for _ in range(30):  # a weight that is trained outside of it
            w.mul_(1.01)
            replays(1)
        assert stats()["converted"] < 12, stats()
        causeway.config.set("layouts", False)
        replays(2)
        assert stats()["kept"] == 0, stats()
        causeway.config.set("layouts", True)
        for _ in range(64): g.replay()
        replays(2)
        assert stats()["kept"] == 1, stats()
        del w, f
        torch.sim.synchronize()
        g.replay()  # which reads memory that is free by now: an error of the program's, and no more
        del g, out
        assert stats()["kept"] == 0, stats()
    """
    assert chip(CAPTURE + textwrap.dedent(program), **env) == ""


@pytest.mark.parametrize("env", SET_UPS[-2:], ids=lambda env: "-".join(env.values()))
def test_what_a_graph_computes_has_no_form(chip, env) -> None:
    program = """
        v = weight()
        g, out = capture(lambda: (w * 1.5, v.add_(1), x * 2), 1)
        g.replay()
        for times in range(3):
            for made, want in ((out[0], w.cpu() * 1.5), (v, v.cpu())):
                for _ in range(4): y = x @ made
                torch.testing.assert_close(y.cpu(), x.cpu() @ want, rtol=1e-4, atol=1e-4)
            w.mul_(2)
            g.replay()
        assert stats()["kept"] == 0
        try:
            torch.sim.allow_layouts(v)
        except ValueError as error:
            assert "graph" in str(error) and "clone()" in str(error), error
        else:
            raise AssertionError
    """
    assert chip(CAPTURE + textwrap.dedent(program), **env) == ""


def test_a_kernel_of_the_program_s_own_is_a_write(chip) -> None:
    program = """
        from causeway.code import Program
        text = '''
        void twice(void* const* args, const uint32_t* group, const uint32_t* grid) {
          float* w = *(float**)args[0];
          for (int i = 0; i < 6300; ++i) w[i] *= 2;
        }
        const uint32_t twice_arguments = 1;
        '''
        p = Program("#include <stdint.h>\\n" + text)
        right(w)
        p.function("twice")((1,), (1,), w)
        right(w)
        assert stats()["converted"] == 2 and stats()["written"] == 1
    """
    assert chip(program, CAUSEWAY_SIM_CODE="1") == ""


def test_a_pointer_that_is_given_away_ends_it(chip) -> None:
    program = """
        import ctypes
        right(w)
        assert stats()["kept"] == 1
        pointer = w.data_ptr()
        assert stats()["kept"] == 0
        ctypes.memset(pointer, 0, 4 * 90)
        right(w)
        assert (w[0] == 0).all() and stats()["kept"] == 0 and stats()["handed_out"] == 1
        torch.sim.allow_layouts(w)
        right(w)
        assert stats()["kept"] == 1 and used() == 1
        layer = torch.nn.Linear(70, 90, device="sim")
        layer.weight.data_ptr()
        torch.sim.allow_layouts(layer)
        for _ in range(3): layer(x)
        assert stats()["kept"] == 2
    """
    assert chip(program) == ""


def test_memory_of_others_is_left_alone(chip) -> None:
    program = """
        y = torch.from_dlpack(w)
        for _ in range(4): x @ y
        assert stats()["converted"] == 0
        try:
            torch.sim.allow_layouts(y)
        except ValueError as error:
            assert "clone()" in str(error)
        else:
            raise AssertionError
    """
    assert chip(program) == ""


def test_training_converts_nothing(chip) -> None:
    program = """
        model = torch.nn.Sequential(torch.nn.Linear(70, 200), torch.nn.Linear(200, 90))
        model.to("sim")
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(5):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        assert stats()["converted"] == 0, stats()
        with torch.no_grad():
            for _ in range(5): model(x)
        assert stats()["converted"] == 2 and stats()["used"] == 6, stats()
        model.to("cpu")
        assert stats()["kept"] == 0
    """
    assert chip(program) == ""


def test_what_hardly_pays_is_converted_more_seldom(chip) -> None:
    program = """
        for _ in range(200):
            x @ w; x @ w
            w.mul_(1.01)
        assert stats()["converted"] < 5, stats()
    """
    assert chip(program) == ""


def test_a_checkpoint_has_the_plain_tensor_and_costs_no_form(chip, tmp_path) -> None:
    program = f"""
        import io
        from safetensors import torch as safetensors
        right(w)
        assert stats()["kept"] == 1
        path = {str(tmp_path / "w")!r}
        torch.save({{"w": w}}, path + ".pt")
        torch.save(w.untyped_storage(), io.BytesIO())
        safetensors.save_file({{"w": w}}, path + ".safetensors")
        assert stats()["kept"] == 1 and used() == 1, stats()
        found = torch.load(path + ".pt", map_location="cpu", weights_only=True)["w"]
        assert torch.equal(found, w.cpu()) and found.stride() == (90, 1)
        files = (lambda: torch.load(path + ".pt")["w"],
                 lambda: torch.load(path + ".pt", map_location="sim", mmap=True)["w"],
                 lambda: safetensors.load_file(path + ".safetensors", device="sim:0")["w"])
        for number, load in enumerate(files):
            w = load()
            right(w)
            assert w.device.type == "sim" and used() == 1, number
            w.mul_(2)
            right(w)
        layer = torch.nn.Linear(70, 90, device="sim")
        for assign in (False, True):
            file = io.BytesIO()
            torch.save(layer.state_dict(), file)
            file.seek(0)
            layer.load_state_dict(torch.load(file), assign=assign)
            for _ in range(3): layer(x)
            assert stats()["kept"] == 2, (assign, stats())  # and that of w
        pointer = layer.weight.untyped_storage().data_ptr()  # the program's own question
        assert stats()["kept"] == 1 and pointer == layer.weight.data_ptr()
        # and that of the writer of the old format, which is C++
        torch.save(w, io.BytesIO(), _use_new_zipfile_serialization=False)
        assert stats()["kept"] == 0 and stats()["handed_out"] == 2, stats()
    """
    assert chip(program) == ""


def test_it_makes_room_before_memory_runs_out(chip) -> None:
    program = """
        ws = [torch.randn(512, 1024, device="sim") for _ in range(8)]
        x = torch.randn(2, 512, device="sim")
        for w in ws:
            for _ in range(3): x @ w
        assert stats()["kept"] == 8
        rest = torch.empty(40 << 20, dtype=torch.uint8, device="sim")
        assert stats()["kept"] == 0 and stats()["freed"] == 8, stats()
        assert torch.sim.memory_stats()["num_ooms"] == 0
        w = ws[0]
        y = [x @ w for _ in range(5)]  # and where there is no room none is made
        torch.testing.assert_close(y[-1].cpu(), x.cpu() @ w.cpu(), rtol=1e-4, atol=1e-3)
        try:
            torch.empty(60 << 20, dtype=torch.uint8, device="sim")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError
        assert torch.sim.memory_stats()["num_ooms"] == 1
    """
    assert chip(program, memory="64M") == ""


def test_it_can_be_switched_off(chip) -> None:
    program = """
        for _ in range(4): x @ w
        assert stats()["converted"] == 0
        causeway.config.set("layouts", True)
        for _ in range(4): x @ w
        assert stats()["kept"] == 1
        causeway.config.set("layouts", False)
        assert stats()["kept"] == 0 and used() == 0
    """
    assert chip(program, CAUSEWAY_LAYOUTS="off") == ""
    program = "for _ in range(4): x @ w\nassert stats()['converted'] == 0"
    assert chip(program, without="layout.v1") == ""


def test_a_vendor_that_fails_to_convert_says_so(chip) -> None:
    program = """
        x @ w
        try:
            x @ w
        except causeway.CausewayError as error:
            print("of pack answers" in str(error))
        right(w)
    """
    assert chip(program, fault="pack:1=FAILED") == "True\n"
    assert chip("right(w); assert stats()['kept'] == 0", fault="pack:*=UNSUPPORTED") == ""


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_writes_of_several_streams_are_all_waited_for(chip, execution) -> None:
    program = """
        big = torch.randn(1500, 1500, device="sim")
        side = torch.sim.Stream()
        big @ big  # the default stream is busy
        w = weight()
        with torch.sim.stream(side):
            w.add_(0.5)
            for _ in range(3): x @ w
        torch.accelerator.synchronize()
        right(w)
    """
    assert chip(program, execution=execution) == ""


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_a_weight_that_many_streams_write_is_right(chip, execution) -> None:
    program = """
        w = weight()
        for value in range(8):
            with torch.sim.stream(torch.sim.Stream()):
                w.add_(value)
                for _ in range(3): x @ w
        torch.accelerator.synchronize()
        right(w)
        assert stats()["kept"] == 0, stats()  # too many streams to wait for
    """
    assert chip(program, execution=execution) == ""


@pytest.mark.parametrize("execution", ["inline", "async"])
def test_threads_write_and_read_without_order(chip, execution) -> None:
    program = """
        import threading
        wrong = []
        for trial in range(20):
            w = weight()
            def reads():
                with torch.sim.stream(torch.sim.Stream()):
                    for _ in range(30): x @ w
            def writes():
                with torch.sim.stream(torch.sim.Stream()):
                    for _ in range(10): w.add_(0.5)
            threads = [threading.Thread(target=f) for f in (reads, writes, reads, reads)]
            for t in threads: t.start()
            for t in threads: t.join()
            torch.accelerator.synchronize()
            right(w)
    """
    assert chip(program, execution=execution) == ""


def test_any_program_of_writes_and_products_has_the_cpu_s_numbers(chip) -> None:
    program = """
        import random
        pick = random.Random(7)
        streams = [torch.sim.Stream() for _ in range(2)] + [torch.sim.default_stream()]
        for program in range(25):
            base = torch.randn(80, 96)
            ours = base.to("sim")
            def views(b):
                t = b.t()
                return [b[:70, :90], t[:70, :80], b[2:72].t()[:70], t[5:75], b.view(96, 80)[:70]]
            now = torch.sim.current_stream()
            for step in range(40):
                stream = pick.choice(streams)
                stream.wait_stream(now)
                now = stream
                at, what = pick.randrange(5), pick.randrange(10)
                a, b = views(base)[at], views(ours)[at]
                with torch.sim.stream(stream):
                    if what < 7:
                        y = x @ b
                        torch.testing.assert_close(y.cpu(), x.cpu() @ a, rtol=1e-3, atol=1e-3)
                    elif what == 7:
                        a.mul_(-0.9), b.data.mul_(-0.9)
                    elif what == 8:
                        row = torch.randn(a.shape[1])
                        a[3].copy_(row), b[3].copy_(row)
                    else:
                        a.t()[1:4].add_(1), torch._foreach_add_([b.t()[1:4]], 1)
        assert stats()["converted"] > 20 and stats()["used"] > 50, stats()
    """
    assert chip(program, execution="async") == ""


def test_the_ledger_and_the_doctor_tell_of_it(chip) -> None:
    program = """
        with causeway.ledger() as ledger:
            right(w)
        print(ledger.table())
        assert ledger.layouts == {"converted": 1, "used": 2}
    """
    out = chip(program)
    assert "1 tensor converted to the chip's own layout (layout.v1), used 2 times more" in out
