"""The stand-in libopapi: two phases, strides, dtypes, what it refuses and what fails on the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]


def test_strides_and_offsets_are_followed(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        a = ops.tensor(list(range(6)), [2, 2], stride=[1, 3], offset=1)
        b, out = ops.tensor([10, 20], [2, 1]), ops.tensor([0] * 4, [2, 2])
        ops.run("Add", a, b, ops.scalar(2), out)
        print(ops.values(out))
    """)
        == "[21.0, 24.0, 42.0, 45.0]"
    )


def test_whole_numbers_stay_exact(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        a, b, out = (ops.tensor([v], [1], dtype=INT64) for v in (2**60 + 1, 3, 0))
        ops.run("Mul", a, b, out)
        print(ops.values(out)[0] == 3 * (2**60 + 1))
    """)
        == "True"
    )


def test_halves_round_to_even(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        a, out = ops.tensor([1 + 2**-11, 1 + 3 * 2**-11, 70000, 2**-25, 1e-7], [5]), ops.tensor([0] * 5, [5], dtype=HALF)
        ops.run("Cast", a, HALF, out)
        print(ops.values(out) == [1, 1 + 2**-9, float("inf"), 0, 2**-23])
    """)
        == "True"
    )


def test_a_product_of_matrices_that_do_not_fit_is_refused(on_chip: Run) -> None:
    assert "[2, 3] and [2, 3]" in on_chip("""
        ops = operators()
        a, out = ops.tensor([0] * 6, [2, 3]), ops.tensor([0] * 4, [2, 2])
        print(refused(161002, ops.prepare, "Mm", a, a, out, ctypes.c_int8(0)))
        refused(161001, ops.prepare, "Mm", a, None, out, ctypes.c_int8(0))
    """)


def test_a_matrix_becomes_blocks_and_multiplies(on_chip: Run) -> None:
    said = on_chip("""
        ops = operators()
        rows = [[(i * 20 + j) % 7 - 3 for j in range(20)] for i in range(18)]
        plain = ops.tensor(sum(rows, []), [18, 20], dtype=HALF)
        shape, rank, form = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64(), ctypes.c_int()
        ask = ops.api.aclnnNpuFormatCastCalculateSizeAndFormat
        of = ctypes.byref(shape), ctypes.byref(rank), ctypes.byref(form)
        ask(plain, FRACTAL_NZ, -1, *of)
        blocks = list(shape[:rank.value])
        fresh = [float("nan")] * 1024
        nz = ops.tensor(fresh, [18, 20], dtype=HALF, storage=blocks, format=FRACTAL_NZ)
        ops.run("NpuFormatCast", plain, nz)
        found = ops.values(nz)
        at = lambda i, j: ((j // 16 * 2 + i // 16) * 16 + i % 16) * 16 + j % 16
        same = all(found[at(i, j)] == rows[i][j] for i in range(18) for j in range(20))
        print(blocks, form.value, same, sum(map(abs, found)) == sum(abs(v) for r in rows for v in r))
        x, out = ops.tensor([1, 2] * 9, [1, 18], dtype=HALF), ops.tensor([0] * 20, [1, 20], dtype=HALF)
        ops.run("MatmulWeightNz", x, nz, out, ctypes.c_int8(0))
        right = [sum((1 + i % 2) * rows[i][j] for i in range(18)) for j in range(20)]
        print(ops.values(out) == right)
        turned = ops.describe(nz.address, [20, 18], HALF, [1, 20], 0, blocks, FRACTAL_NZ)
        y, out = ops.tensor([1] * 20, [1, 20], dtype=HALF), ops.tensor([0] * 18, [1, 18], dtype=HALF)
        ops.run("MatmulWeightNz", y, turned, out, ctypes.c_int8(0))
        print(ops.values(out) == [sum(r) for r in rows])
        back = ops.tensor([0] * 360, [18, 20], dtype=HALF)
        ops.run("NpuFormatCast", nz, back)
        print(ops.values(back) == sum(rows, []))
    """)
    assert said == "[2, 2, 16, 16] 29 True True\nTrue\nTrue\nTrue"


def test_a_dimension_of_a_tensor_that_has_none_is_refused(on_chip: Run) -> None:
    said = on_chip("""
        ops = operators()
        one, out, two = ops.tensor([1], []), ops.tensor([0], []), ops.tensor([0, 0], [2])
        first, i64 = ops.ints(0), ctypes.c_int64
        print(refused(161002, ops.prepare, "Flip", one, first, out))
        print(refused(161002, ops.prepare, "Roll", one, first, first, out))
        print(refused(161002, ops.prepare, "RepeatInterleaveIntWithDim", one, i64(2), i64(0), i64(2), two))
    """).splitlines()
    assert len(said) == 3
    assert all("dimension 0 of a tensor that has none" in line for line in said)


def test_blocks_are_not_taken_for_anything_else(on_chip: Run) -> None:
    said = on_chip("""
        ops = operators()
        make = lambda storage, format: ops.tensor(
            [0] * 1024, [18, 20], dtype=HALF, storage=storage, format=format)
        nz = make([2, 2, 16, 16], FRACTAL_NZ)
        x, out = ops.tensor([0] * 18, [1, 18], dtype=HALF), ops.tensor([0] * 20, [1, 20], dtype=HALF)
        zero = ctypes.c_int8(0)
        print(refused(161002, ops.prepare, "Mm", x, nz, out, zero))
        print(refused(161002, ops.prepare, "MatmulWeightNz", x, make([1024], 2), out, zero))
        print(refused(161002, ops.prepare, "MatmulWeightNz", x, make([4, 1, 16, 16], 29), out, zero))
        single = ops.tensor([0] * 360, [18, 20])
        place = ctypes.c_void_p()
        refused(161002, ops.api.aclnnNpuFormatCastCalculateSizeAndFormat, single, 29, -1,
                ctypes.byref(place), ctypes.byref(place), ctypes.byref(place))
    """).splitlines()
    assert "the operator takes plain ones" in said[0]
    assert "has format 2, expected FRACTAL_NZ" in said[1]
    assert "expected [2, 2, 16, 16]" in said[2]


def test_the_matrix_unit_takes_no_whole_numbers(on_chip: Run) -> None:
    assert "INT32" in on_chip("""
        ops = operators()
        a, out = (ops.tensor([1] * 4, [2, 2], dtype=INT32) for _ in range(2))
        print(refused(161002, ops.prepare, "Mm", a, a, out, ctypes.c_int8(0)))
    """)


@pytest.mark.parametrize(("chip", "end"), [("Ascend910B1", 64), ("Ascend950PR_9599", 32)])
def test_memory_behind_a_result_is_overwritten(on_chip: Run, chip: str, end: int) -> None:
    assert (
        on_chip(
            """
        ops = operators()
        block = malloc(ops.acl, 256)
        write(ops.acl, block, bytes(256))
        first = ops.describe(block, [3], FLOAT, None, 0, [3])
        ops.run("InplaceOne", first)
        after = read(ops.acl, block, 256)
        end = END
        print(after[12:end] == b"\\xa5" * (end - 12), after[end:] == bytes(256 - end))
        # A storage that begins between multiples of 32: its end is what is rounded.
        write(ops.acl, block, bytes(256))
        ops.run("InplaceOne", ops.describe(ctypes.c_void_p(block.value + 20), [3], FLOAT, None, 0, [3]))
        after = read(ops.acl, block, 256)
        print(after[32:end] == b"\\xa5" * (end - 32), after[end:] == bytes(256 - end))
    """.replace("END", str(end)),
            SOC=chip,
        )
        == "True True\nTrue True"
    )


def test_an_executor_is_used_again_with_other_addresses(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        a, b, out, other = ops.tensor([1, 2], [2]), ops.tensor([5, 6], [2]), ops.tensor([0, 0], [2]), ops.tensor([0, 0], [2])
        executor, _ = ops.prepare("Sqrt", a, out)
        ops.api.aclSetAclOpExecutorRepeatable(executor)
        ops.launch("Sqrt", executor)
        ops.api.aclSetInputTensorAddr(executor, c_size_t(0), a.handle, b.address)
        ops.api.aclSetTensorAddr(executor, c_size_t(1), out.handle, other.address)
        ops.launch("Sqrt", executor)
        ops.acl.aclrtSynchronizeDevice()
        print([round(v * v, 3) for v in ops.values(out) + ops.values(other)])
        ops.api.aclDestroyAclOpExecutor(executor)
    """)
        == "[1.0, 2.0, 5.0, 6.0]"
    )


def test_an_executor_refuses_what_is_not_to_be_told_to_it(on_chip: Run) -> None:
    said = on_chip("""
        ops = operators()
        a, b, out = ops.tensor([1, 2], [2]), ops.tensor([5, 6], [2]), ops.tensor([0, 0], [2])
        executor, _ = ops.prepare("Sqrt", a, out)
        tell = ops.api.aclSetTensorAddr
        print(refused(161002, tell, executor, c_size_t(0), a.handle, b.address))
        ops.api.aclSetAclOpExecutorRepeatable(executor)
        print(refused(161002, tell, executor, c_size_t(2), a.handle, b.address))
        print(refused(161002, tell, executor, c_size_t(0), b.handle, b.address))
        print(refused(161002, tell, executor, c_size_t(0), a.handle, c_void_p(b.address.value + 4)))
        print(refused(561103, tell, executor, c_size_t(0), None, b.address))
    """)
    for words in (
        "not repeatable",
        "there is no tensor 2",
        "none of those",
        "no multiple of 32",
        "is NULL",
    ):
        assert words in said


def test_an_operator_whose_memory_was_freed_fails_on_the_device(on_chip: Run) -> None:
    assert "aclnnSqrt: reads 8 bytes" in on_chip("""
        ops = operators()
        a, out = ops.tensor([1, 2], [2]), ops.tensor([0, 0], [2])
        executor, _ = ops.prepare("Sqrt", a, out)
        ops.acl.aclrtFree(a.address)
        ops.launch("Sqrt", executor)
        print(refused(507035, ops.acl.aclrtSynchronizeDevice))
    """)


def test_an_index_outside_fails_on_the_device_and_the_device_stays_so(on_chip: Run) -> None:
    assert "index 7" in on_chip("""
        ops = operators()
        a, at, out = ops.tensor([1, 2], [2]), ops.tensor([7], [1], dtype=INT64), ops.tensor([0], [1])
        print(refused(507035, ops.run, "IndexSelect", a, c_int64(0), at, out))
        executor, _ = ops.prepare("Sqrt", a, a)
        refused(507035, ops.launch, "Sqrt", executor)
    """)


def test_an_operator_without_a_context_is_refused(on_chip: Run) -> None:
    on_chip("""
        import threading
        ops, said = operators(), []
        a = ops.tensor([1, 2], [2])
        other = threading.Thread(target=lambda: said.append(refused(NO_CONTEXT, ops.prepare, "Sqrt", a, a)))
        other.start(), other.join()
        assert "aclrtSetDevice" in said[0]
    """)


def test_nonzero_tells_its_shape_when_it_has_run(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        a, out = ops.tensor([0, 3, 0, 4], [2, 2]), ops.tensor([0] * 8, [4, 2], dtype=INT64)
        ops.run("Nonzero", a, out)
        shape, rank = ctypes.POINTER(c_int64)(), c_uint64()
        ops.api.aclGetViewShape(out, byref(shape), byref(rank))
        print(shape[: rank.value], ops.values(out)[:4])
    """)
        == "[2, 2] [0, 1, 1, 1]"
    )


def test_an_operator_that_is_not_modelled_is_not_exported(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        print(hasattr(ops.api.library, "aclnnSvd"), hasattr(ops.api.library, "aclnnSqrt"))
    """)
        == "False True"
    )


def test_a_wrong_result_on_purpose_is_wrong(on_chip: Run) -> None:
    assert (
        on_chip(
            """
        ops = operators()
        a = ops.tensor([4, 9], [2])
        ops.run("Sqrt", a, a)
        print(ops.values(a))
    """,
            WRONG="aclnnSqrt",
        )
        == "[3.0, 3.0]"
    )


def test_operators_are_taken_into_a_capture(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        a, s, graph = ops.tensor([2], [1]), stream(ops.acl), c_void_p()
        ops.acl.aclmdlRICaptureBegin(s, 0)
        executor, _ = ops.prepare("Mul", a, a, a)
        ops.launch("Mul", executor, s)
        ops.acl.aclmdlRICaptureEnd(s, byref(graph))
        for _ in range(3):
            ops.acl.aclmdlRIExecuteAsync(graph, s)
        ops.acl.aclrtSynchronizeStream(s)
        print(ops.values(a))
    """)
        == "[256.0]"
    )


def test_relu_keeps_nan_and_makes_zero_of_minus_infinity(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        inf = float("inf")
        a, out = ops.tensor([-inf, inf, -1, float("nan")], [4]), ops.tensor([5] * 4, [4])
        ops.run("Relu", a, out)
        print(ops.values(out))
    """)
        == "[0.0, inf, 0.0, nan]"
    )


@pytest.mark.parametrize(("chip", "saved"), [("Ascend910B1", "4.0"), ("Ascend950PR_9599", "0.5")])
def test_a_training_batch_norm_saves_what_the_chip_saves(
    on_chip: Run, chip: str, saved: str
) -> None:
    assert (
        on_chip(
            """
        ops = operators()
        a, out = ops.tensor([-2, 2], [2, 1]), ops.tensor([0, 0], [2, 1])
        mean, scale = ops.tensor([9], [1]), ops.tensor([9], [1])
        zero, yes = c_double(0), c_bool(True)
        ops.run("BatchNorm", a, None, None, None, None, yes, zero, zero, out, mean, scale)
        print(*ops.values(out), *ops.values(mean), *ops.values(scale))
    """,
            SOC=chip,
        )
        == f"-1.0 1.0 0.0 {saved}"
    )


def test_complex_numbers_are_copied_through_strides(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        parts = [struct.pack("2f", i, -i) for i in range(4)]
        a = ops.tensor(parts, [2, 2], dtype=COMPLEX64, stride=[1, 2])
        b = ops.tensor([bytes(8)] * 4, [2, 2], dtype=COMPLEX64)
        ops.run("InplaceCopy", b, a)
        real, truth = ops.tensor([9] * 4, [2, 2]), ops.tensor([False] * 4, [2, 2], dtype=BOOL)
        ops.run("InplaceCopy", real, a)
        ops.run("InplaceCopy", truth, a)
        print(struct.unpack("8f", read(acl, b.address, 32)), ops.values(real), ops.values(truth))
    """)
        == "(0.0, 0.0, 2.0, -2.0, 1.0, -1.0, 3.0, -3.0) [0.0, 2.0, 1.0, 3.0] [False, True, True, True]"
    )


def test_the_least_number_divided_by_minus_one_wraps(on_chip: Run) -> None:
    assert (
        on_chip("""
        ops = operators()
        a = ops.tensor([-(1 << 63), 7], [2], dtype=INT64)
        b, out = ops.tensor([-1, -2], [2], dtype=INT64), ops.tensor([9, 9], [2], dtype=INT64)
        for name in ("FmodTensor", "RemainderTensorTensor", "FloorDivide"):
            ops.run(name, a, b, out)
            print(ops.values(out), end=" ")
    """)
        == "[0, 1] [0, -1] [-9223372036854775808, -4]"
    )


# Values at the edges, where CANN's public kernels, its own tests against torch, and torch agree.
EDGES = {
    "a row with an infinity": (
        "LogSoftmax", "of([1, inf], [-inf, -inf]), c_int64(1), out(2, 2)", "[nan, nan, nan, nan]"
    ),
    "the sign of NaN": ("Sign", "of([nan, -2]), out(1, 2)", "[0.0, -1.0]"),
    "the sign of NaN in a list": ("ForeachSign", "many([nan, -2]), many([9, 9])", "[0.0, -1.0]"),
    "a mixture from the end": (
        "Lerp", "of([inf, -inf]), of([1, 1]), of([0.5, 0.25]), out(1, 2)", "[inf, nan]"
    ),
    "a mixture beyond the end": ("Lerps", "of([inf, 1]), of([1, 3]), scalar(8), out(1, 2)",
                                 "[-inf, 17.0]"),
    "a mixture in a list": (
        "ForeachLerpScalar", "many([inf, 1]), many([1, 3]), scalar(8), many([9, 9])",
        "[-inf, 17.0]",
    ),
    "the slope at NaN": (
        "SmoothL1LossBackward",
        "of([1, 1]), of([nan, 3]), of([0, 0]), c_int64(2), c_float(1), out(1, 2)", "[nan, 1.0]",
    ),
    "a sum of large integers": (
        "IndexAdd",
        "of([1, 2**62 + 1], dtype=INT64), c_int64(1), of([0, 1], [], dtype=INT64), "
        "of([2**62 + 3, 2**62], dtype=INT64), scalar(-1), out(1, 2, dtype=INT64)",
        "[-4611686018427387906, 1]",
    ),
    "a divisor of the least integer": (
        "Gcd", "of([-32768, -6], dtype=INT16), of([32767, 4], dtype=INT16), "
        "out(1, 2, dtype=INT16)", "[-1, 2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("edge", EDGES)
def test_values_at_the_edges_are_the_chips(on_chip: Run, edge: str) -> None:
    name, arguments, expected = EDGES[edge]
    said = on_chip(f"""
        from math import inf, nan
        ops, made = operators(), []
        def of(*rows, dtype=FLOAT):
            flat = sum(rows, [])
            shape = [len(flat)] if rows[-1] == [] else [len(rows), len(rows[0])]
            made.append(ops.tensor(flat, shape, dtype=dtype))
            return made[-1]
        out = lambda rows, columns, **how: of(*[[9] * columns] * rows, **how)
        def many(*rows):
            made.append(ops.tensor(rows[0], [len(rows[0])]))
            handles = (c_void_p * 1)(made[-1].handle)
            create = ops.api.library.aclCreateTensorList
            create.restype = c_void_p
            return c_void_p(create(handles, c_uint64(1)))
        scalar = ops.scalar
        ops.run("{name}", {arguments})
        print(ops.values(made[-1]))
    """)
    assert said == expected


def test_the_scales_of_nearest_neighbours_are_taken_where_the_chip_takes_them(on_chip: Run) -> None:
    said = on_chip("""
        ops = operators()
        size, shape = ops.ints(1, 6), ops.ints(1, 1, 1, 4)
        def forward(*scales):
            a, out = ops.tensor([0, 1, 2, 3], [1, 1, 1, 4]), ops.tensor([9] * 6, [1, 1, 1, 6])
            ops.run("UpsampleNearest2dV2", a, size, *map(c_float, scales), out)
            print([int(v) for v in ops.values(out)])
        forward(1, 1.7), forward(0, 0), forward(0, 1.7)
        # The gradient of planes this small goes by the sizes, of larger ones by the scales.
        def backward(rows, columns, wide, by):
            g = ops.tensor(list(range(rows * wide)), [1, 1, rows, wide])
            out = ops.tensor([9] * rows * columns, [1, 1, rows, columns])
            ops.run("UpsampleNearest2dBackward", g, ops.ints(rows, wide),
                    ops.ints(1, 1, rows, columns), c_double(1), c_double(by), out)
            print([int(v) for v in ops.values(out)][:columns])
        backward(1, 4, 6, 1.7), backward(8, 16, 27, 1.7)
    """).splitlines()
    assert said[:4] == [
        "[0, 0, 1, 1, 2, 2]",
        "[0, 0, 1, 2, 2, 3]",
        "[0, 0, 1, 2, 2, 3]",
        "[1, 2, 7, 5]",
    ]
    large = [0] * 16
    for column in range(27):
        large[min(int(column / 1.7), 15)] += column
    assert said[4] == str(large)


def test_a_largest_value_of_whole_numbers_is_refused(on_chip: Run) -> None:
    assert "INT64" in on_chip("""
        ops = operators()
        a, out, at = (ops.tensor([1] * 4, [1, 2, 2], dtype=INT64) for _ in range(3))
        pair, zero = ops.ints(1, 1), ops.ints(0, 0)
        print(refused(161002, ops.prepare, "MaxPool2dWithIndices", a, pair, pair, zero, pair,
                      c_bool(False), out, at))
    """)
