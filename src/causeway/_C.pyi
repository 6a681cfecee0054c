"""What the C++ core gives to Python. Everything else of Causeway is Python over these and over stock torch."""

from collections.abc import Callable
from typing import Any

import torch

# --- vendor -------------------------------------------------------------------------------------------------
class CausewayError(RuntimeError): ...

def set_error_types(types: dict[str, type[BaseException]]) -> None:
    """Name the Python classes that C++ raises: Causeway, Vendor, DeviceLost, Fallback, UnsupportedDtype, Index."""

def set_name_check(refusal: Callable[[str], str | None]) -> None:
    """What a table's name must pass: the reason why not, or None."""

def set_settings(vendor: str, values: dict[str, str | None]) -> None:
    """What the vendor's library is told of its settings, by key: a text, or nothing for None. Of other keys it is told
    what the environment has: CAUSEWAY_<VENDOR>_<KEY>."""

def load_vendor(path: str) -> None:
    """Open a vendor's library, check and copy its table. Opens no device. Raises VendorError with the reason."""

def load_paper(paper: dict[str, Any], path: str) -> None:
    """Take a chip that is not there for the vendor: name, version, device, memory, dtypes, host_addressable,
    operators {name: {needs, dtypes}}, library (its path, or ""). Its kernels compute on the CPU."""

def set_dry(on: bool, small: int = 65536) -> None:
    """On a chip on paper: count and shape, and compute only what is known and has `small` elements at most. Raises in
    the operator where the program asks for a number that was not computed."""

def needed_contents() -> str:
    """What a dry run was asked for and did not have, "" for nothing."""

def vendor_notes() -> str:
    """What the vendor's library says of itself, a line each (extension notes.v1); "" where it says nothing."""

def vendor_state() -> dict[str, Any]:
    """path, name, version, abi_version, level (0..4), entries {name: offered}, extensions [name]; {} before load."""

def device_count() -> int:
    """Number of visible devices; raises VendorError with the driver's words when it cannot tell."""

def set_visible_devices(indices: list[int] | None) -> None:
    """Map device i to the vendor's indices[i]. Only before the first device is opened."""

def vendor_device_count() -> int:
    """Number of the vendor's devices, before set_visible_devices."""

def device_info(device: int) -> dict[str, Any]:
    """name, memory, dtypes (list of torch.dtype), host_addressable, alignment, padding,
    compute_units, capability (major, minor), uuid (16 bytes), priorities (lowest, highest)."""

def device_attribute(device: int, key: str) -> int | float | str | None:
    """What the vendor says of a key of abi.h's `device_attribute`; None where it does not know."""

def peer_access(device: int, peer: int) -> bool | None:
    """Whether two different devices exchange data without the host; None: the vendor does not say."""

def host_register(start: int, bytes: int) -> None:
    """Pin memory that is there already; raises VendorError where the vendor cannot."""

def host_unregister(start: int) -> None: ...
def is_initialized() -> bool:
    """Whether this process has opened a device."""

def init() -> None:
    """Open the current device now instead of at its first use."""

def in_bad_fork() -> bool: ...
def set_first_use(f: Callable[[], None]) -> None:
    """Call f() once, under the GIL, before this process counts or opens its first device."""

def drain_autograd_threads() -> None:
    """Wait until torch's autograd threads hold nothing of Python any more; called at exit."""

def stream_native_handle(stream: torch.Stream) -> int: ...
def stream_priority(stream: torch.Stream) -> int: ...
def stream_priority_range(device: int) -> tuple[int, int]: ...
def adopt_stream(handle: int, device: int) -> torch.Stream:
    """The stream of a vendor's handle, which another library made."""

def cores(device: int, stream: torch.Stream | None) -> tuple[int, int] | None:
    """How many cores this process, or `stream`, has now, and how many there are. None: the vendor shares none."""

def set_cores(device: int, stream: torch.Stream | None, limit: int) -> None:
    """Hold them to `limit`; 0: to none. VendorError where the vendor shares none."""

def layout_names() -> list[str]:
    """The vendor's own layouts; empty: it has none, or this torch cannot watch storages."""

def set_layouts(on: bool) -> None: ...
def drop_layouts(device: int) -> None:
    """Free all that is kept in a layout of the vendor's on a device; -1: on all."""

def allow_layouts(tensor: torch.Tensor) -> bool:
    """Watch its storage again. False: it is not memory that can be watched."""

def keeps_layouts(tensor: torch.Tensor) -> bool:
    """Whether writes to its storage are noticed, so that it may have a form."""

def storage_address(storage: torch.UntypedStorage) -> int:
    """Where it is, for who does not write there: nothing that is kept of it is given up."""

def layout_stats(device: int) -> dict[str, int]: ...
def layouts_used() -> tuple[int, int]:
    """Of all devices: forms that were made, and how often one was used again."""

def set_on_wait(level: int) -> None:
    """0: the host waits, 1: with a warning, 2: a wait is an error."""

def on_wait() -> int: ...
def set_stream(stream: torch.Stream) -> None: ...

# --- memory -------------------------------------------------------------------------------------------------
def memory_snapshot(device: int) -> list[dict[str, Any]]:
    """Segments as torch.cuda.memory_snapshot gives them: device, address, total_size, allocated_size,
    active_size, requested_size, stream, segment_type, blocks [{address, size, requested_size, state}]."""

def memory_history(device: int) -> list[dict[str, Any]]:
    """What the allocator did, oldest first, in torch's form: action, addr, size, stream, time_us, frames."""

def set_memory_history(
    enabled: str | None,
    context: str | None,
    stacks: str,
    max_entries: int,
    clear: bool,
    skip: list[str],
) -> None: ...
def set_profile_clock(clock: str) -> None:
    """clock: "device", the vendor's own times where it has them, or "events"."""

def set_autocast_policies(policies: dict[str, str]) -> None:
    """Operators, with namespace and overload, and "low", "fp32", "promote" or "none"; those set
    before are forgotten. Raises ValueError and sets nothing for what does not exist.
    """

def empty_cache(pool: tuple[int, int] = (0, 0)) -> None:
    """Of all pools but those that are kept, or of one that is kept no more."""

def retain_pool(device: int, pool: tuple[int, int], use_on_oom: bool, no_split: bool) -> None: ...
def release_pool(device: int, pool: tuple[int, int]) -> None: ...
def pool_uses(device: int, pool: tuple[int, int]) -> int: ...
def use_pool(device: int, pool: tuple[int, int]) -> None:
    """Have this thread allocate from it, until `end_use_of_pool`."""

def end_use_of_pool(device: int, pool: tuple[int, int]) -> None: ...
def set_memory_caching(on: bool) -> None: ...
def set_memory_fraction(fraction: float, device: int) -> None: ...
def memory_fraction(device: int) -> float: ...
def raw_alloc(bytes: int, device: int, stream: torch.Stream) -> int: ...
def raw_delete(pointer: int) -> None: ...
def host_memory_stats() -> dict[str, int]: ...
def reset_host_memory_stats(kind: str) -> None:
    """kind: "peak" or "accumulated"."""

def host_alias(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor on the bytes of a device tensor, after a sync. Raises where the host cannot address them."""

def ipc_export(storage: torch.UntypedStorage) -> tuple[int, bytes, int, int]:
    """(device, handle, offset in bytes, size in bytes); raises VendorError where the vendor has no ipc.v1."""

def ipc_import(device: int, handle: bytes, offset: int, bytes: int) -> torch.UntypedStorage: ...

# --- random numbers -------------------------------------------------------------------------------------------
def default_generator(device: int) -> torch.Generator: ...
def host_generator(seed: int, offset: int) -> torch.Generator:
    """A generator of the CPU that draws what the host rung draws where the device's generator has this state."""

# --- operators -------------------------------------------------------------------------------------------------
RUNGS: tuple[str, ...]
"""native, derived, decomposed, portable, host."""

def operators() -> list[str]:
    """Qualified names, "aten::add.out", of every operator with a kernel of ours."""

def facts(name: str) -> dict[str, Any]:
    """What is known of "aten::add_.Tensor" beside its schema: the fields of `causeway.ops.facts.Facts`."""

def out_form(name: str) -> str:
    """The form of "aten::add_.Tensor" that writes into given outputs, "aten::add.out"; "" where there is none."""

def functional_form(name: str) -> str:
    """The form of an in-place operator, or of one with out=, that returns new tensors; "" where there is none."""

def facts_table() -> dict[str, dict[str, Any]]:
    """The rows of csrc/ladder/facts.cpp by name, "add" or "add.out": `facts`, and "why", a tuple of reasons."""

def set_portable(on: bool, except_: list[str]) -> None: ...
def offered_portable() -> dict[str, dict[str, Any]]:
    """What `offered` is, of Causeway's own kernels; {} where the vendor has no compiler."""

def set_tune(mode: str, folder: str) -> None: ...
def tuned(device: int) -> list[dict[str, Any]]:
    """Classes of products of which something is known: "name", "cut" ("" while it is measured), "source", "gain",
    "measurements"."""

def cuts(device: int, f64: bool) -> list[str]:
    """The cuts that a product in float32 or float64 can take; none without a compiler."""

def code_units(device: int) -> int:
    """How many groups of items run at once; 0 without a compiler."""

def force_cut(index: int) -> None:
    """For tests: every product takes this one of `cuts`; -1: as tuned."""

def named() -> list[str]:
    """Operators of other libraries that the vendor names (operators.v1), imported or not."""

def offered() -> dict[str, dict[str, Any]]:
    """Operators the vendor's op_find answered for: {"aten::add.out": {"needs": int, "dtypes": [torch.dtype]}}."""

def watch_environment(prefix: str, changed: Callable[[str], None]) -> None:
    """Call `changed(name)` just before os.environ gives a variable whose name begins with `prefix` another value."""

def set_forced(names: list[str]) -> None:
    """Operators that go to the host rung whatever the vendor offers."""

def set_policy(fallback: str, only: list[str] | None, budget: int, dtypes: str) -> None:
    """fallback: allow, warn or error, for the host rung; only: operators it holds for, None for all; budget:
    host calls before it holds, -1 for none; dtypes: error or narrow, for dtypes the chip lacks."""

def ledger_enable(on: bool) -> None:
    """Count dtypes, bytes and seconds too; counts of calls by operator and rung are always kept."""

def ledger_read() -> list[tuple[str, str, str, int, int, float, float]]:
    """(operator, rung, dtype, calls, bytes copied, seconds that the host worked, seconds that it
    waited for the device), since the start of the process.
    """

def set_decomposer(
    f: Callable[[str, tuple[Any, ...], dict[str, Any], bool], Callable[..., Any] | None] | None,
) -> None:
    """`f(name, args, kwargs, in_capture)` gives a function that computes the operator from better-served ones, or None."""

def set_composer(f: Callable[[str], Callable[..., Any] | None] | None) -> None:
    """`f(name)` gives a function that computes an operator that the CPU has no kernel for, or None."""

def set_describer(f: Callable[[str], Callable[..., Any] | None]) -> None:
    """`f(name)` gives a function that describes the results of another library's operator; see ops/describe.py."""

def set_newcomer(f: Callable[[str], tuple[bool, bool]] | None) -> None:
    """`f(name)` says of an operator that comes later whether it is sent to the host, and whether the policy holds for it."""

# --- programs of the user's own ----------------------------------------------------------------------------------
def code_info(device: int) -> dict[str, Any]:
    """What the vendor's code.v1 says of the device's compiler and launches."""

class CodeFunction:
    def launch(
        self, grid: list[int], group: list[int], args: list[torch.Tensor | bytes]
    ) -> None: ...

class CodeProgram:
    def __init__(self, device: int, text: str | bytes, binary: bool, options: str) -> None: ...
    def function(self, name: str) -> CodeFunction: ...
    def binary(self) -> bytes: ...

# --- observers -------------------------------------------------------------------------------------------------
class ObservedCall:
    """One observed call; see causeway.observe.observe.ObservedCall, which is what observers get."""

    name: str
    rung: str
    error: str
    sequence: int
    thread: int
    depth: int
    backward: bool
    node: str
    node_sequence: int
    node_thread: int
    def args(self) -> tuple[Any, ...]: ...
    def results(self) -> tuple[Any, ...]: ...

def own_kernels() -> list[str]:
    """Qualified names of the kernels that are Causeway's own and that no rung serves."""

def set_observers(
    begin: Callable[[ObservedCall], Any] | None,
    end: Callable[[ObservedCall, Any], None] | None,
    names: list[str],
    values: bool = False,
) -> None:
    """`begin(call)` before and `end(call, token)` after each call of these operators, with the token that begin gave.
    `values`: they look at what tensors hold, so that a compiled product's own result is there to be seen.
    An operator that torch makes known later is observed until begin gives None for it."""

def pause_observers(on: bool) -> bool:
    """Whether this thread's calls go unobserved; gives what was before."""

def autograd_position() -> tuple[int, int]:
    """What tells this thread's next autograd node: torch's number of the thread, and the node's number."""

class Redirect:
    """`original` as a callable without a frame of its own, with the argument `name` (at `position` where it is 0 or
    more) replaced by what `table` or else `find` has for it; then `found()` is called."""

    def __init__(
        self,
        original: Any,
        table: dict[Any, Any],
        find: Callable[[Any], Any],
        name: str,
        found: Callable[[], Any],
        position: int = -1,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def comm_backend(
    store: Any,
    rank: int,
    size: int,
    timeout: Any,
    gloo: Callable[[Any, int, int, Any], Any],
    name: str,
    group: str,
    ranks: list[int],
    chunk_bytes: int,
    blocking: bool,
    checked: bool,
    through_host: bool,
) -> Any:
    """A backend of torch.distributed for one process group. `gloo(store, rank, size, timeout)` makes the one for its
    CPU tensors. The vendor's communicator is made by eager_connect_single_device, else with the first collective."""

def comm_group(backend: Any, seen: Any) -> Any:
    """A process group that `backend` serves alone, for tensors of the device and of the CPU. `seen` is what torch
    calls: the backend itself, or a wrapper of it."""

def comm_report(backend: Any) -> str:
    """One line: how many ranks, on which hosts, and by what their collectives go."""

class CommGroupOptions:
    """The options of a group of this backend, as torch.distributed.split_group copies them."""

def comm_routes(backend: Any) -> dict[str, str]:
    """Which way each collective goes: `native`, `host`, or those that it is put together from."""

def close_comm() -> None:
    """End the threads of all process groups that are left. Waits for a second where a collective is under way."""

# --- torch.compile ------------------------------------------------------------------------------------------
def compiler_info(device: int) -> dict[str, Any] | None:
    """language, in_turn, compute_units, group_limit, simd_width, local_memory, arithmetic (bits of abi.h's dtypes),
    driver; None where the device has no compiler."""

class CompiledKernel:
    """A kernel of a compiled graph. Called with the number of units of work and its parameters: tensors, numbers."""

    name: str
    launches: int
    def __call__(self, units: int, *args: torch.Tensor | float) -> None: ...

def compiled_source(device: int, before: str, kernels: list[Any]) -> str:
    """The text that the device's compiler gets for these kernels (compile/kernel_text.py)."""

def build_kernels(device: int, before: str, kernels: list[Any]) -> list[CompiledKernel]:
    """Compile them as one program, with the functions of `before`. Raises VendorError with the compiler's message."""

class CompiledEpilogue:
    """What follows a product of a compiled graph. Called with the product's call, a function without arguments, and the
    epilogue's parameters; returns None where the product's kernel did it, else what the call gave."""

    taken: int
    def __call__(self, call: Callable[[], Any], *args: torch.Tensor | float) -> Any: ...

def epilogue(device: int, operator: str, before: str, row: str, kernel: Any) -> CompiledEpilogue:
    """Of the operator `operator`, by the text of `kernel` (compile/kernel_text.py) for one element
    (csrc/portable/epilogue.h), with the functions of `before`; `row` comes first, once a row."""

def goes_portable(name: str, dtype: torch.dtype, device: int) -> bool:
    """Whether the operator goes to a portable kernel: it has one, and the vendor has none of its own."""

class Graph:
    """Work that a stream was given while a capture lasted, and that replays give again."""

    def __init__(self, keep_graph: bool = False) -> None: ...
    def begin(
        self,
        pool: tuple[int, int] = (0, 0),
        apart: list[int] = ...,
        apart_pool: tuple[int, int] = (0, 0),
    ) -> None:
        """`apart`: which of its allocations, in order, come from the other pool."""
    def allocations(self) -> list[int]:
        """Addresses that the capture was given, in order."""
    def end(self) -> None: ...
    def abort(self) -> None: ...
    def instantiate(self) -> None: ...
    def replay(self) -> None: ...
    def run_step(self, step: int) -> None:
        """Run one step and wait, before the graph is instantiated."""
    def noted(self) -> int:
        """How many steps it has so far."""
    def reset(self) -> None: ...
    def pool(self) -> tuple[int, int]: ...
    def dump(self, path: str) -> None: ...
    def keep_dump(self, on: bool) -> None: ...
    def steps(self) -> list[tuple[Any, ...]]:
        """(kind, operator, function, grid, group, arguments, bytes, byte) of each step."""
    def memory(self) -> list[tuple[int, int, int]]:
        """(address, bytes, step before which it was given) of each allocation."""
    def random(self) -> int:
        """How many places differ from replay to replay."""
    def of_vendor(self) -> int:
        """Steps that a graph of the vendor's holds: graph.v1."""
    def merged(self) -> int:
        """Steps that one kernel runs with others."""
    def __len__(self) -> int: ...

def register_graph() -> None:
    """Let torch.accelerator.Graph find it, by the name that the device has by now."""

def new_pool_id() -> tuple[int, int]: ...
def make_external(event: int) -> None:
    """Have captures record the event with this `event_id` as it is, where they would have an edge."""

def is_capturing(device: int) -> bool:
    """Whether this thread's current stream of the device is captured; -1: of the current device."""

def set_merger(
    f: Callable[[list[tuple[str, str]], int, bool], tuple[str, str, list[int]] | None],
) -> None:
    """Called with functions' names and sources, how many addresses a launch has at most, and
    whether an address is two parameters; gives a source, its kernel and the functions' numbers.
    """

def on_first_capture(f: Callable[[], None]) -> None:
    """Call `f` once, before the first capture of a graph."""

def refuse_capture(what: str, instead: str) -> None:
    """Fail the capture of the current stream, if there is one, with a CausewayError."""

class GraphCall:
    """A call that was captured: inputs are where they were, or copied; results are the caller's."""

    def __init__(
        self,
        graph: Graph,
        inputs: list[Any],
        copied: list[bool],
        mutated: list[bool],
        outputs: list[Any],
    ) -> None: ...
    def __call__(self, args: list[Any]) -> list[Any] | int | None:
        """Results; or the place of an input that moved; or None, for inputs of other sizes."""

def keep_sources(on: bool) -> None:
    """Keep the sources of kernels that are built from now on, and build all anew."""

def source_of(function: int) -> tuple[str, str]:
    """A function's name and its program's source, where they were kept; else two empty texts."""

def block_of(device: int, address: int) -> tuple[int, int]:
    """Start and bytes of the allocated block that holds an address; (0, 0): none does."""

def read_memory(device: int, address: int, bytes: int) -> bytes: ...
def write_memory(device: int, address: int, data: bytes) -> None: ...
def told_at(device: int) -> int:
    """Where kernels tell errors; 0: none did so far."""

def tellers() -> list[str]:
    """The operators that may tell, by their numbers from 1."""
