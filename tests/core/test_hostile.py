"""A vendor that breaks the contract gets a refusal with words; no process ends and none hangs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from odd_vendors import INCLUDE

HERE = Path(__file__).parent
HEAD = """
import faulthandler, os, sys
faulthandler.dump_traceback_later(60, exit=True)
import causeway, torch
def error(call, kind=causeway.VendorError):
    try:
        call()
    except Exception as e:
        assert isinstance(e, causeway.CausewayError) and type(e) is kind, repr(e)
        return str(e)
    raise AssertionError("nothing was raised")
def says(message, *words):
    for word in words:
        assert word in message, (word, message)
def ones(n=4):
    return torch.ones(n, device="hostile")
"""


@pytest.fixture(scope="module")
def hostile(run, tmp_path_factory: pytest.TempPathFactory):
    """Run a program on the vendor that breaks the contract in this one way."""
    library = tmp_path_factory.mktemp("vendors") / "libcw_hostile.so"
    source = HERE / "vendors" / "hostile.cpp"
    flags = ["-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
    subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)

    def go(how: str, program: str, **env: str) -> str:
        return run(HEAD + program, CAUSEWAY_VENDOR=str(library), HOSTILE=how, **env)

    return go


def test_it_works_where_it_breaks_nothing(hostile) -> None:
    hostile("", "assert torch.relu(ones() - 2).tolist() == [0] * 4")


# --- exceptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["throw", "number"])
@pytest.mark.parametrize(
    ("entry", "call"),
    [
        ("device_count", "ones"),
        ("device_info", "ones"),
        ("mem_alloc", "ones"),
        ("sync", "(ones(), torch.hostile.synchronize)[1]"),
        ("op_find", "(lambda: torch.relu(ones()))"),
        ("kernel", "(lambda: torch.relu(ones()))"),
    ],
)
def test_what_an_entry_throws_is_a_vendor_error_that_names_it(hostile, how, entry, call) -> None:
    words = {"throw": ("std::runtime_error", "no driver"), "number": ("int",)}[how]
    name = {"kernel": "aten::relu"}.get(entry, entry)
    hostile(f"{how}:{entry}", f"says(error({call}), {name!r}, 'hostile', 'threw', *{words!r})")


def test_a_library_that_throws_when_it_is_opened_is_refused(hostile) -> None:
    program = """
assert not torch.hostile.is_available()
import causeway.autoload
says(str(causeway.autoload.state.error), "is refused", "cw_open_v1 threw a C++ exception, int")
"""
    hostile("number:open", program, PYTHONWARNINGS="ignore")


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("memory:0", ("hostile:0", "it has no memory")),
        ("alignment:3", ("alignment 3", "no power of two")),
        ("alignment:big", ("alignment 2147483648", "the most is")),
        ("priorities", ("priority_highest 5", "priority_lowest 0", "the smaller number")),
        ("count:-5", ("device_count answered -5",)),
        ("unaligned", ("mem_alloc", "no multiple of 64")),
        ("status:mem_alloc", ("mem_alloc failed with status 77",)),
    ],
)
def test_what_cannot_be_is_refused_at_first_use(hostile, how: str, words: tuple[str, ...]) -> None:
    hostile(how, f"says(error(ones), *{words!r})")


def test_devices_beyond_the_most_are_cut_with_a_warning(hostile) -> None:
    program = """
assert torch.hostile.device_count() == 64
"""
    assert "has 100 devices; the first 64" in hostile("count:100", program)


def test_a_table_without_a_size_is_not_called_old(hostile) -> None:
    program = """
import causeway.autoload
says(str(causeway.autoload.state.error), "its table says that it has 0 bytes")
"""
    hostile("size:0", program, PYTHONWARNINGS="ignore")


# --- bytes that are not UTF-8 -------------------------------------------------------------------

ESCAPED = r"\xb4\xed\xce\xf3: GBK"


def test_words_in_another_encoding_are_escaped(hostile) -> None:
    hostile("bytes:mem_alloc", f"says(error(ones), 'mem_alloc failed with FAILED', {ESCAPED!r})")


def test_a_log_in_another_encoding_fails_no_operator(hostile) -> None:
    program = "assert torch.relu(ones()).tolist() == [1] * 4"
    assert f"hostile: {ESCAPED}" in hostile("bytes:log", program)


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ("bytes:name", "torch.hostile.get_device_properties().name"),
        ("bytes:version", "causeway._C.vendor_state()['version']"),
        ("bytes:notes", "causeway._C.vendor_notes()"),
    ],
)
def test_names_in_another_encoding_are_escaped(hostile, how: str, value: str) -> None:
    hostile(how, f"import causeway._C; assert {value} == {ESCAPED!r}, {value}")


def test_null_is_no_message_and_no_setting(hostile) -> None:
    hostile("null", "assert torch.relu(ones()).tolist() == [1] * 4")


# --- locks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "other"),
    [
        ("mem_alloc", "torch.hostile.empty_cache"),
        ("mem_alloc", "torch.accelerator.empty_cache"),
        ("mem_alloc", "torch.hostile.memory_stats"),
        ("mem_alloc", "torch.hostile.memory._snapshot"),
        ("device_info", "lambda: torch.hostile.get_device_properties(1)"),
    ],
)
def test_a_vendor_that_asks_for_a_setting_in_any_entry_hangs_no_thread(hostile, how, other) -> None:
    program = f"""
import threading, time
ones()
def work():
    if {how!r} == "mem_alloc":
        for size in range(4):
            torch.empty((30 + size) << 20, dtype=torch.uint8, device="hostile")
    else:
        torch.empty(3, device="hostile:1")
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.1)
({other})()
thread.join()
"""
    hostile(f"asks:{how}", program)


# --- the end of a process -----------------------------------------------------------------------


def test_a_profile_that_an_error_left_on_does_not_crash_the_process(hostile) -> None:
    program = """
try:
    with torch.profiler.profile():
        ones()
except causeway.VendorError:
    pass
"""
    hostile("throw:sync", program, PYTHONWARNINGS="ignore")
