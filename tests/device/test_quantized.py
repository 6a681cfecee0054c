"""Causeway's layers in integers on the device: the CPU's bits, and its strides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "quant"))

from random_layers import SMALL, WIDE, integers, random_layer, random_numbers, random_sum

import causeway.quant  # noqa: F401

OPERATORS = torch.ops.causeway


def assert_same(on_device: torch.Tensor, on_cpu: torch.Tensor) -> None:
    assert on_device.stride() == on_cpu.stride()
    assert on_device.dtype == on_cpu.dtype
    back = on_device.cpu()
    assert torch.equal(back.nan_to_num(7), on_cpu.nan_to_num(7)), (back, on_cpu)


@pytest.mark.parametrize("seed", range(0, 80, 10))
def test_products_have_the_bits_of_the_cpu(device: torch.device, seed: int) -> None:
    for s in range(seed, seed + 10):
        layer = random_layer(s)
        assert_same(layer(str(device)), layer())


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_sums_have_the_bits_of_the_cpu(device: torch.device, seed: int) -> None:
    for s in range(seed, seed + 10):
        layer = random_sum(s)
        assert_same(layer(str(device)), layer())


def test_wide_products_have_the_bits_of_the_cpu(device: torch.device) -> None:
    for s in range(6):
        layer = random_sum(s, WIDE) if s % 3 == 0 else random_layer(s, WIDE)
        assert_same(layer(str(device)), layer())


@pytest.mark.long
@pytest.mark.once
@pytest.mark.timeout(3000)
def test_ten_thousand_products(device: torch.device) -> None:
    for s in range(1000, 11000):
        sizes = WIDE if s % 4 == 0 else SMALL
        layer = random_sum(s, sizes) if s % 5 == 0 else random_layer(s, sizes)
        assert_same(layer(str(device)), layer())


def _extremes(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    least, most = (0, 255) if dtype == torch.uint8 else (-128, 127)
    return torch.where(torch.rand(shape) < 0.4, least, most).to(dtype)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
def test_products_of_the_largest_bytes(device: torch.device, dtype: torch.dtype) -> None:
    """Sums of which a pair would not fit into 16 bits, of all lengths around vectors of 64 bytes;
    1 to 3 rows, up to 7, and more are cut differently, and so are fewer than 16 outputs.
    """
    torch.manual_seed(0)
    for rows, outs in ((1, 9), (3, 3), (9, 5), (8, 16), (31, 17), (33, 48), (70, 33)):
        for depth in (1, 3, 63, 64, 65, 192):
            x, weight = _extremes([rows, depth], dtype), _extremes([outs, depth], torch.int8)
            given = (torch.ones(1), None, None, 0, False, None, None, 0, 0, torch.float32)
            assert_same(
                OPERATORS.qlinear(
                    x.to(device), weight.to(device), torch.ones(1).to(device), *given[1:]
                ),
                OPERATORS.qlinear(x, weight, *given),
            )


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("outs", [12, 40])
@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "geometry"),
    [
        (64, 1, 1, ([2, 1], [0, 0], [1, 1], False, [0, 0])),  # where the input lies, with steps
        (128, 2, 1, ([1, 1], [0, 0], [1, 1], False, [0, 0])),
        (64, 1, 3, ([1, 2], [1, 0], [1, 2], False, [0, 0])),
        (48, 2, 3, ([1, 1], [1, 1], [1, 1], False, [0, 0])),
        (3, 1, 5, ([2, 2], [2, 2], [1, 1], False, [0, 0])),
        (64, 1, 2, ([2, 2], [0, 0], [1, 1], True, [0, 0])),
    ],
    ids=["1x1", "1x1 groups", "dilated", "groups", "image", "transposed"],
)
def test_images_of_the_largest_bytes(
    device: torch.device,
    channels: int,
    groups: int,
    kernel: int,
    geometry: tuple[object, ...],
    outs: int,
    dtype: torch.dtype,
) -> None:
    """Zero points, borders, requantization: all with integers that are as large as they get."""
    torch.manual_seed(channels)
    shape = [channels, outs] if geometry[3] else [outs, channels // groups]
    weight = _extremes([*shape, kernel, kernel], torch.int8)
    taps = torch.randint(-(1 << 15), 1 << 15, (outs, kernel * kernel))
    scale, inverse = torch.rand(outs) * 1e-4, torch.tensor([0.7])
    after = (False, inverse, torch.tensor([-5], dtype=torch.int32), -128, 127, torch.int8)
    for memory in (torch.contiguous_format, torch.channels_last):
        x = _extremes([2, channels, 9, 7], dtype).to(memory_format=memory)
        given = (x, weight, scale, torch.randn(outs), taps, 0, *geometry, groups, *after)
        moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in given]
        assert_same(OPERATORS.qconv(*moved), OPERATORS.qconv(*given))


RESIDUALS: dict[str, Callable[[list[int]], list[torch.Tensor | None]]] = {
    "none": lambda shape: [],
    "bytes": lambda shape: [integers(shape, torch.int8), torch.tensor([0.03]), None],
    "offset": lambda shape: [
        integers(shape, torch.uint8), torch.rand(shape[1]), torch.tensor([-7], dtype=torch.int32)
    ],
    "float32": lambda shape: [
        torch.where(torch.rand(shape) < 0.1, float("nan"), torch.randn(shape)), None, None
    ],
}  # fmt: skip


# Tiles within a row of the image and across, several widths of columns, an image of bytes.
@pytest.mark.parametrize(
    ("dtype", "channels", "outs", "groups", "kernel", "stride", "size", "to", "residual"),
    [
        (torch.int8, 64, 40, 1, 3, 1, (18, 20), torch.int8, "none"),
        (torch.int8, 64, 40, 1, 3, 1, (18, 20), torch.int8, "bytes"),
        (torch.int8, 64, 40, 1, 3, 1, (18, 20), torch.int8, "float32"),
        (torch.int8, 64, 40, 1, 3, 1, (18, 20), torch.uint8, "offset"),
        (torch.int8, 64, 40, 1, 3, 1, (18, 20), torch.float32, "float32"),
        (torch.int8, 64, 80, 2, 3, 1, (18, 20), torch.int8, "offset"),
        (torch.int8, 64, 144, 1, 1, 2, (20, 20), torch.int8, "offset"),
        (torch.uint8, 3, 33, 1, 7, 2, (40, 31), torch.int8, "none"),
        (torch.uint8, 3, 33, 1, 7, 2, (40, 31), torch.float32, "bytes"),
    ],
)
def test_positions_as_they_lie(
    device: torch.device,
    dtype: torch.dtype,
    channels: int,
    outs: int,
    groups: int,
    kernel: int,
    stride: int,
    size: tuple[int, int],
    to: torch.dtype,
    residual: str,
) -> None:
    """Channels beside each other: many positions, cut in tiles of 16."""
    torch.manual_seed(0)
    pad = kernel // 2

    def last(t: torch.Tensor) -> torch.Tensor:
        return t.to(memory_format=torch.channels_last)

    x = last(_extremes([2, channels, *size], dtype))
    weight = last(_extremes([outs, channels // groups, kernel, kernel], torch.int8))
    shape = [2, outs, *((n + 2 * pad - kernel) // stride + 1 for n in size)]
    added = [last(t) if t is not None and t.dim() == 4 else t for t in RESIDUALS[residual](shape)]
    taps = torch.randint(-(1 << 15), 1 << 15, (outs, kernel * kernel), dtype=torch.int32)
    inverse, zero = torch.rand(outs), torch.randint(-9, 9, (outs,), dtype=torch.int32)
    low, high = (0, 255) if to == torch.uint8 else (-128, 127)
    geometry = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups)
    operator = OPERATORS.qconv_add if added else OPERATORS.qconv
    for with_taps, shift in ((None, 0), (taps, 4)):
        given = (
            *(x, weight, torch.rand(outs) * 1e-4, torch.randn(outs), with_taps, shift, *geometry),
            *(*added, with_taps is None, inverse, zero, low, high, to),
        )
        moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in given]
        assert_same(operator(*moved), operator(*given))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=str)
def test_the_largest_without_their_places(
    device: torch.device, dtype: torch.dtype, memory: torch.memory_format
) -> None:
    torch.manual_seed(0)
    x = (torch.randn(2, 70, 11, 9) * 50).to(dtype).to(memory_format=memory)
    if dtype == torch.float32:
        x[0, 3, 4, 5] = float("nan")
    for window in (
        ([3, 3], [2, 2], [1, 1], [1, 1], False),
        ([2, 3], [], [0, 1], [2, 1], True),
    ):
        got = OPERATORS.max_pool2d(x.to(device), *window)
        assert_same(got, OPERATORS.max_pool2d(x, *window))
        assert_same(got, torch.max_pool2d(x, *window))


def test_numbers_are_quantized_as_on_the_cpu(device: torch.device, module) -> None:
    has = module.get_device_properties(0).dtypes
    for seed in range(100):
        given = random_numbers(seed)
        if given[0].dtype not in has:
            given[0] = given[0].float()
        moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in given]
        assert_same(OPERATORS.quantize(*moved), OPERATORS.quantize(*given))


def test_numbers_apart_in_memory(device: torch.device) -> None:
    """Scales, biases and inputs that are every second element of something else."""
    torch.manual_seed(0)

    def apart(t: torch.Tensor) -> torch.Tensor:
        return torch.stack([t, torch.full_like(t, 77)], -1)[..., 0]

    weight = torch.randint(-128, 128, (6, 5), dtype=torch.int8)
    scale, bias, inverse = torch.rand(6), torch.randn(6), torch.rand(6) * 1e-3
    zero = torch.arange(6, dtype=torch.int32)
    taps = torch.randint(-99, 99, (6, 1))
    x = torch.randint(-128, 128, (3, 5), dtype=torch.int8)
    rest = (False, inverse, zero, -128, 127, torch.int8)
    expected = OPERATORS.qlinear(x, weight, scale, bias, taps, 2, *rest)
    image, kernel = x.view(3, 5, 1), weight.view(6, 5, 1)
    geometry = ([1], [0], [1], False, [0], 1)
    for far in (
        lambda t: apart(t).to(device),
        lambda t: apart(t.to(device)),
    ):
        moved = [far(a) if isinstance(a, torch.Tensor) else a for a in rest]
        given = [far(a) for a in (scale, bias, taps)]
        assert_same(OPERATORS.qlinear(far(x), far(weight), *given, 2, *moved), expected)
        conv = OPERATORS.qconv(far(image), far(kernel), *given, 2, *geometry, *moved)
        assert torch.equal(conv.cpu().view(3, 6), expected)
        numbers = torch.randn(2, 6)
        args = (1, -128, 127, torch.int8)
        assert_same(
            OPERATORS.quantize(far(numbers), far(inverse * 1e4), far(zero), *args),
            OPERATORS.quantize(apart(numbers), inverse * 1e4, zero, *args),
        )


def test_sums_beyond_32_bits(device: torch.device) -> None:
    x = torch.full((2, 70_000), -128, dtype=torch.int8)
    weight = torch.full((3, 70_000), -128, dtype=torch.int8)
    given = (torch.ones(1), None, None, 0, False, None, None, 0, 0, torch.float32)
    expected = OPERATORS.qlinear(x, weight, *given)
    assert expected[0, 0] == float(70_000 * 128 * 128)
    moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in (x, weight, *given)]
    assert_same(OPERATORS.qlinear(*moved), expected)


def test_what_does_not_fit_is_an_error(device: torch.device) -> None:
    x = torch.zeros(2, 3, dtype=torch.int8, device=device)
    weight = torch.zeros(4, 3, dtype=torch.int8, device=device)
    one, three = torch.ones(1, device=device), torch.ones(3, device=device)
    rest = (None, None, 0, False, None, None, 0, 0, torch.float32)
    with pytest.raises(RuntimeError, match="does not go with weights"):
        OPERATORS.qlinear(x, weight[:, :2], one, *rest)
    with pytest.raises(RuntimeError, match="expected an input of int8"):
        OPERATORS.qlinear(x.float(), weight, one, *rest)
    with pytest.raises(RuntimeError, match="one for each of the 4 channels"):
        OPERATORS.qlinear(x, weight, three, *rest)
    image = torch.zeros(1, 3, 2, 2, dtype=torch.int8, device=device)
    kernel = torch.zeros(4, 3, 3, 3, dtype=torch.int8, device=device)
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    with pytest.raises(RuntimeError, match="smaller than the kernel"):
        OPERATORS.qconv(image, kernel, one, None, None, 0, *geometry, *rest[3:])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("rows", [1, 3, 6, 40])
def test_products_with_packed_weights(device: torch.device, bits: int, rows: int) -> None:
    from causeway.quant.weights import WeightOnlyLinear

    torch.manual_seed(rows)
    for columns, group in ((64, 32), (192, 64), (96, 96)):
        linear = torch.nn.Linear(columns, 19)
        packed = WeightOnlyLinear.of(linear, bits, group)
        x = torch.randn(rows, columns)
        with torch.no_grad():
            expected = packed(x)
            on_device = packed.to(device)
            for dtype, close in ((torch.float32, 1e-4), (torch.float16, 1e-2)):
                got = on_device(x.to(device, dtype))
                assert got.dtype == dtype
                torch.testing.assert_close(got.cpu().float(), expected, rtol=close, atol=close)


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", ["signed halves", "float8"])
def test_products_with_signed_halves_and_float8(
    device: torch.device, kind: str, zeros: bool, rows: int
) -> None:
    g = torch.Generator().manual_seed(rows)
    outs, columns, group = 19, 96, 32
    scale = torch.rand(outs, columns // group, generator=g) + 0.1
    zero = torch.randint(-3, 3, scale.shape, generator=g).float() if zeros else None
    if kind == "float8":
        # Every number of the format, the least ones and both zeros too.
        each = torch.arange(256, dtype=torch.uint8)
        each = each[(each & 127) != 127].repeat(8)[: outs * columns].view(outs, columns)
        weight = each.view(torch.float8_e4m3fn)
        q, bits = weight.float(), 8
    else:
        weight = torch.randint(-128, 128, (outs, columns // 2), generator=g).to(torch.int8)
        halves = weight.view(torch.uint8).int().view(outs, -1, 16)
        q, bits = torch.cat([halves & 15, halves >> 4], -1).view(outs, columns), 4
        q = torch.where(q > 7, q - 16, q).float()
    wide = q.view(outs, -1, group) - (0 if zero is None else zero.unsqueeze(-1))
    wide = (wide * scale.unsqueeze(-1)).view(outs, columns)
    x = torch.randn(rows, columns, generator=g)
    expected = x @ wide.t()
    close = {"rtol": 1e-5, "atol": 1e-6 * float(expected.abs().max())}
    given = (weight, scale, zero)
    torch.testing.assert_close(OPERATORS.qlinear_weight(x, *given, group, bits), expected, **close)
    moved = [None if t is None else t.to(device) for t in given]
    got = OPERATORS.qlinear_weight(x.to(device), *moved, group, bits)
    torch.testing.assert_close(got.cpu(), expected, **close)
    if kind == "float8":
        weight.view(torch.uint8)[3, 5] = 0xFF  # NaN
        there = OPERATORS.qlinear_weight(x.to(device), weight.to(device), *moved[1:], group, bits)
        assert there[:, 3].isnan().all()
        assert not there[:, 4].isnan().any()


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_rows_of_floats(device: torch.device, rows: int) -> None:
    """quantize and qlinear at once, in one kernel where rows are few: depths around its vectors,
    more outputs than it finishes together, an offset, and what is no number.
    """
    torch.manual_seed(rows)
    for kind, depth, outs in (
        *((torch.int8, depth, 131) for depth in (16, 64, 65, 192, 8256)),
        *((torch.int8, 64, 1), (torch.int16, 64, 5)),
    ):
        low, high = -128 if kind == torch.int8 else -32768, 127 if kind == torch.int8 else 32767
        weight = integers([outs, depth], kind)
        zero = torch.tensor([-7], dtype=torch.int32)
        taps = weight.long().sum(1, keepdim=True) * -7
        after = (torch.rand(outs) * 1e-3, torch.randn(outs))
        x = torch.randn(rows, depth)
        x[0, 0] = float("nan")
        x[-1, -1] = float("inf")
        for dtype in (torch.float32, torch.float16):
            for steps, end in (
                ((torch.tensor([30.0]), None), None),
                ((torch.tensor([30.0]), zero), taps),
                ((torch.tensor([30.0]), zero), taps.int()),
            ):
                given = (x.to(dtype), *steps, low, high, weight, *after, end)
                moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in given]
                q = OPERATORS.quantize(given[0], *steps, 1, low, high, kind)
                rest = (*after, end, 0, False, None, None, 0, 0, dtype)
                wanted = OPERATORS.qlinear(q, weight, *rest)
                for operator in (OPERATORS.quantize_qlinear, OPERATORS.linear_in_integers):
                    assert_same(operator(*given), wanted)
                    assert_same(operator(*moved), wanted)


def test_rows_of_floats_far_from_each_other(device: torch.device) -> None:
    """Inputs and weights with steps between their elements, and no rows."""
    torch.manual_seed(0)
    weight, x = integers([9, 64], torch.int8), torch.randn(2, 64)
    given = (torch.tensor([30.0]), None, -128, 127)
    after = (torch.rand(1), None, None)
    wanted = OPERATORS.linear_in_integers(x, *given, weight, *after)
    on_device = [a.to(device) if isinstance(a, torch.Tensor) else a for a in (*given, *after)]
    ways: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda t: t.t().contiguous().t(),
        lambda t: torch.stack([t, t], -1)[..., 0],
    )
    for far in ways:
        for apart in ways:
            a, b = far(x.to(device)), apart(weight.to(device))
            got = OPERATORS.linear_in_integers(a, *on_device[:4], b, *on_device[4:])
            assert_same(got, wanted)
    none = OPERATORS.linear_in_integers(
        x[:0].to(device), *on_device[:4], weight.to(device), *on_device[4:]
    )
    assert none.shape == (0, 9)
