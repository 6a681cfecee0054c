"""The stand-in libmspti: records of kernels with the numbers that were pushed, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., str]

# `records()` flushes, and gives what came as tuples, without their times but for how long.
WATCH = """
import struct, time
ms = Library("libmspti.so")
ENOUGH = 1 << 21
buffers, came = [], []

@CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
def request(buffer, size, most):
    buffers.append(create_string_buffer(ENOUGH))
    buffer[0], size[0], most[0] = addressof(buffers[-1]), ENOUGH, 0

@CFUNCTYPE(None, c_void_p, c_size_t, c_size_t)
def complete(buffer, size, valid):
    record = c_void_p()
    while ms.library.msptiActivityGetNextRecord(c_void_p(buffer), c_size_t(valid), byref(record)) == 0:
        kind = c_uint32.from_address(record.value).value
        if kind == 2:
            _, begin, end, device, stream, number, _, name = struct.unpack("=IQQIIQQQ", string_at(record, 52))
            came.append(("kernel", string_at(name).decode(), number, begin, end))
        else:
            came.append(("number", *struct.unpack("=IIQQ", string_at(record, 24))[2:]))

def records(seconds=0.05):
    time.sleep(seconds)
    ms.msptiActivityFlushAll(0)
    found = came[:]
    came.clear()
    return found

def watch():
    global subscriber
    subscriber = c_void_p()
    ms.msptiSubscribe(byref(subscriber), None, None)
    ms.msptiActivityRegisterCallbacks(request, complete)
    ms.msptiActivityEnable(8)
    ms.msptiActivityEnable(2)

acl.aclrtSetDevice(0)
ops = Operators(acl)
x, y = (ops.tensor([1.0, 2.0, 3.0], [3]) for _ in "xy")

def launch():
    ops.run("Exp", x.handle, y.handle)
"""


def test_a_kernel_comes_with_the_number_that_was_pushed(on_chip: Run) -> None:
    said = on_chip(
        WATCH
        + """
began = time.time_ns()
watch()
ms.msptiActivityPushExternalCorrelationId(2, c_uint64(77))
launch()
last = c_uint64()
ms.msptiActivityPopExternalCorrelationId(2, byref(last))
launch()
ended = time.time_ns()
found = records()
numbers = [r for r in found if r[0] == "number"]
first, second = sorted((r for r in found if r[0] == "kernel"), key=lambda r: r[2])
print(last.value, numbers == [("number", 77, first[2])], {first[1], second[1]})
print(began <= first[3] <= first[4] <= second[3] <= second[4] <= ended)
"""
    )
    assert said.splitlines() == ["77 True {'aclnnExp'}", "True"]


def test_a_record_comes_late_and_none_after_the_end(on_chip: Run) -> None:
    said = on_chip(
        WATCH
        + """
watch()
launch()
print(len(records(0)), len(records(0.3)))
launch()
ms.msptiActivityDisable(2)
print(len(records(0.3)))
ms.msptiUnsubscribe(subscriber)
launch()
print(len(records(0.3)))
""",
        MSPTI_LATE_MS=200,
    )
    assert said.split() == ["0", "1", "0", "0"]


def test_refusals_have_the_documented_results(on_chip: Run) -> None:
    said = on_chip(
        WATCH
        + """
watch()
f = ms.library
print(f.msptiSubscribe(byref(c_void_p()), None, None), f.msptiSubscribe(None, None, None))
print(f.msptiActivityRegisterCallbacks(None, complete), f.msptiActivityEnable(99))
print([f.msptiActivityEnable(kind) for kind in (4, 5, 6, 7)])
print(f.msptiActivityPopExternalCorrelationId(2, byref(c_uint64())), f.msptiActivityPushExternalCorrelationId(9, c_uint64(1)))
print(f.msptiActivityGetNextRecord(None, c_size_t(8), byref(c_void_p())))
"""
    )
    assert said.splitlines() == ["2 1", "1 1", "[6, 6, 6, 6]", "5 1", "1"]
