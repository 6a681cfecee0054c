"""Inductor's side: which kernels a graph gets, and the Python that calls them.

`register` is called when torch.compile is first used, and patches nothing: Inductor asks for what
was registered by the device of a graph's tensors, so that code for the CPU or CUDA is compiled as
ever.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import re
from pathlib import Path
from typing import Any

import sympy
import torch

import causeway
from causeway import _C, config
from causeway.compile import check, chip, epilogues, integers, lines, names
from causeway.compile.dialect import MEMORY
from causeway.compile.kernel import Kernel
from causeway.compile.kernel_text import KernelText
from causeway.compile.names import (
    BackendFeature,
    CustomGraphModulePass,
    DeviceOpOverrides,
    OrderedSet,
    PythonWrapperCodegen,
    SIMDScheduling,
    SubgraphPythonWrapperCodegen,
    V,
    get_fused_kernel_name,
    get_kernel_metadata,
)


class Scheduling(SIMDScheduling):
    """Turns groups of Inductor's nodes into kernels of the dialect."""

    kernel_type = Kernel

    @classmethod
    def get_backend_features(cls, device: torch.device) -> Any:
        features = [BackendFeature.INPLACE_BUFFERS]
        if chip.code(device.index or 0).in_turn:
            # Few cores: a reduction in two kernels reads and writes more than it gains.
            features.append(BackendFeature.REDUCE_TO_SINGLE_ELEMENT)
        return OrderedSet(features)

    def define_kernel(self, source: str, node_schedule: Any, kernel: Any) -> str:
        wrapper = V.graph.wrapper_code
        device = V.graph.get_current_device_or_throw().index or 0
        nodes = _nodes(node_schedule)
        wrapper.say_line(nodes)
        key = f"{device} {source}"
        text: KernelText = kernel.text
        if key in wrapper.src_to_kernel:
            return str(wrapper.src_to_kernel[key])
        fused = get_fused_kernel_name(node_schedule, "original_aten")
        name = f"{fused}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        program = wrapper.causeway_program(device)
        about = f"{_operators(nodes)!r}, {_source_lines(nodes)!r}"
        about += f", {(kernel.bytes_moved(), _eager_bytes(nodes))!r}"
        body = "\n".join(
            [
                f"{program}.add({name!r}, {text.parameters!r}, {text.cost!r}, {text.lanes}, r'''",
                text.body + f"''', {about})",
            ]
        )
        wrapper.define_kernel(name, body, f"{origins}\n{details}", gpu=False)
        return name

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        if node1.is_template():
            return epilogues.is_epilogue(node1, node2)
        return not node2.is_template() and super().can_fuse_vertical(node1, node2)

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:
        if node1.is_template() or node2.is_template():
            return False
        return super().can_fuse_horizontal(node1, node2)

    def codegen_template(
        self, template_node: Any, epilogue_nodes: Any, prologue_nodes: Any, **more: Any
    ) -> None:
        after = list(epilogue_nodes)
        if after and epilogues.write_product(self, template_node, after):
            return
        template_node.mark_run()
        template_node.node.codegen(V.graph.wrapper_code)
        if not after:
            self.free_buffers_in_scheduler()
        else:
            _, (numel, _) = template_node.group
            schedule = self.generate_node_schedule(after, numel, sympy.S.One)
            self.codegen_node_schedule(names.SIMDKernelFeatures(schedule, numel))

    def operators_of(self, product: Any, after: list[Any]) -> list[torch.fx.Node]:
        """The operators of a graph that a product's call computes with what follows it."""
        own = product.node.get_origin_node()
        made = OrderedSet(product.node.origins if own is None else [own])
        return _in_order(made | OrderedSet(_nodes(after)))

    def define_product(
        self, product: Any, row: str, finish: KernelText, apart: KernelText, nodes: Any
    ) -> str:
        """Add a product with what follows it to the graph's program: `row` and `finish` are the
        epilogue, `apart` the kernel of its own. Returns its name."""
        wrapper = V.graph.wrapper_code
        operator = epilogues.PRODUCTS[product.python_kernel_name]
        about = f"{_operators(nodes)!r}, {_source_lines(nodes)!r}"
        about += f", {bool(torch._inductor.config.max_autotune)}"
        both = f"{finish.parameters!r}, r'''\n{row}''', r'''\n{finish.body}''', "
        both += f"{apart.parameters!r}, {apart.cost}, r'''\n{apart.body}'''"
        key = f"{operator} {both}"
        if key not in wrapper.src_to_kernel:
            fused = "_".join(OrderedSet(filter(None, map(_plain, nodes))))[:80]
            name = f"{fused}_{wrapper.next_kernel_suffix()}"
            wrapper.src_to_kernel[key] = name
            program = wrapper.causeway_program(int(product.get_layout().device.index or 0))
            body = f"{program}.add_product({name!r}, {operator!r}, {both}, {about})"
            wrapper.define_kernel(name, body, "", gpu=False)
        return str(wrapper.src_to_kernel[key])


def _plain(node: torch.fx.Node) -> str:
    """An operator's name, as kernels are called by it."""
    target = node.meta.get("original_aten") or node.target
    return getattr(target, "_overloadpacket", target).__name__ if callable(target) else ""


def _by_ladder_names() -> list[str]:
    """The operators that a graph calls beside its kernels."""
    found = []
    for operation in V.graph.operations:
        name = getattr(operation, "python_kernel_name", None)
        if isinstance(name, str) and isinstance(operation, names.ExternKernel):
            found.append(name.replace("torch.ops.", "").replace("extern_kernels.", "aten."))
    return found


def _nodes(node_schedule: Any) -> list[torch.fx.Node]:
    """The operators of a graph that went into a kernel, in the graph's order."""
    found = OrderedSet()
    for node in node_schedule:
        found.update(getattr(getattr(node, "node", None), "origins", ()))
    return _in_order(found)


def _in_order(nodes: Any) -> list[torch.fx.Node]:
    order = {node: i for i, node in enumerate(V.graph.module.graph.nodes)}
    return sorted(nodes, key=lambda node: order.get(node, 0))


def _operators(nodes: list[torch.fx.Node]) -> list[str]:
    return list(OrderedSet(str(n.meta.get("original_aten") or n.target) for n in nodes))


def _source_lines(nodes: list[torch.fx.Node]) -> list[str]:
    """The lines of the program that a kernel's operators come from."""
    found = OrderedSet()
    for node in nodes:
        frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        if frames:
            found.add(":".join(frames[-1]))
    return list(found)


def _eager_bytes(nodes: list[torch.fx.Node]) -> int:
    """What operators read and write one after the other; those that one call of the program became
    count as one operator."""
    groups: dict[Any, list[torch.fx.Node]] = {}
    for node in nodes:
        if node.op == "call_function":
            source = node.meta.get("from_node")
            groups.setdefault(source[0].name if source else node.name, []).append(node)
    total = 0
    for group in groups.values():
        inside = set(group)
        reads = {given for node in group for given in node.all_input_nodes} - inside
        writes = [node for node in group if not node.users or set(node.users) - inside]
        total += sum(_size_of(node.meta.get("val")) for node in [*reads, *writes])
    return total


def _size_of(value: Any) -> int:
    """Bytes of a tensor, sizes as they are now; 0 of anything else."""
    if not isinstance(value, torch.Tensor):
        return 0
    # What torch.fx has is a symbol of torch's; Inductor's hints are of the expression in it.
    elements: Any = value.numel()
    expression = getattr(getattr(elements, "node", None), "expr", elements)
    hint = V.graph.sizevars.optimization_hint(expression, fallback=0)
    return int(hint) * value.dtype.itemsize


class Wrapper(PythonWrapperCodegen):
    """The Python that allocates, calls kernels and calls what goes by the ladder."""

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: Any,
        partition_signatures: Any = None,
    ) -> Any:
        # `check` compares what a kernel gets with what it gives; nan_asserts looks after kernels.
        if config.get("compile") != "check" and not torch._inductor.config.nan_asserts:
            epilogues.make_templates()
        if is_subgraph:
            return SubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return Wrapper()

    def write_header(self) -> None:
        super().write_header()
        where = "from causeway.compile.runtime import"
        self.imports.writeline(f"{where} Program as CausewayProgram, build as causeway_build")
        self.imports.writeline(f"{where} laid_out as causeway_laid_out")
        if lines.noting():
            where = "from causeway.compile.lines import"
            self.imports.writeline(f"{where} at as causeway_at, work as causeway_work")

    def codegen_inputs(self) -> None:
        super().codegen_inputs()
        # A graph within a graph is computed as one operator of the outer one.
        if config.get("compile") == "check" and not isinstance(self, SubgraphWrapper):
            number = check.keep(V.graph.module)
            self.__dict__["causeway_checked"] = number
            self.header.writeline("from causeway.compile.check import Check as CausewayCheck")
            self.header.writeline(f"causeway_check = CausewayCheck({number})")
            given = ", ".join(V.graph.graph_input_names)
            self.prefix.writeline(f"causeway_check.begin({given})")

    def say_line(self, nodes: list[torch.fx.Node]) -> None:
        """What is called next is of these operators."""
        if lines.noting():
            self.writeline(f"causeway_at({lines.of_nodes(nodes)!r})")

    def say_work(self, operations: Any, moved: Any) -> None:
        """What the kernel that is called next computes and moves: expressions of sizes."""
        of = self.codegen_python_sizevar
        self.writeline(f"causeway_work({of(operations)}, {of(moved)})")

    def _say_line_of(self, node: Any) -> None:
        if lines.noting():
            origin = node.get_origin_node()
            self.say_line([origin] if origin is not None else _in_order(node.origins))

    def generate_extern_kernel_alloc(self, node: Any) -> None:
        self._say_line_of(node)
        super().generate_extern_kernel_alloc(node)

    def generate_extern_kernel_out(self, node: Any) -> None:
        self._say_line_of(node)
        super().generate_extern_kernel_out(node)

    def generate_extern_kernel_multi_out(self, node: Any) -> None:
        self._say_line_of(node)
        super().generate_extern_kernel_multi_out(node)

    def generate_fallback_kernel(self, node: Any) -> None:
        self._say_line_of(node)
        super().generate_fallback_kernel(node)

    def check_after(self, kernel: str, buffers: list[str]) -> None:
        """Compare what a kernel wrote with what its operators give."""
        number = self.__dict__.get("causeway_checked")
        if number is None:
            return
        for buffer in buffers:
            node = V.graph.get_buffer(buffer).get_origin_node()
            if node is not None:
                check.stands_for(number, buffer, node)
        given = ", ".join(f"{buffer}={buffer}" for buffer in buffers)
        self.writeline(f"causeway_check.after({kernel!r}, {given})")

    def causeway_program(self, device: int) -> str:
        """The name of the graph's program on a device."""
        programs = self.__dict__.setdefault("causeway_programs", {})
        if device not in programs:
            programs[device] = f"causeway_program_{device}"
            code = chip.code(device)
            given = f"globals(), {device}, {code.has_float64}, {code.in_turn}"
            given += f", {str(V.graph.name or '')!r}"
            self.header.writeline(f"{programs[device]} = CausewayProgram({given})")
        return str(programs[device])

    def write_assert_size_stride(self, name: str, size: str, stride: str, op_name: str) -> None:
        # Some kernels of torch's CPU have other strides than their meta kernels say, channels-last
        # convolutions for one, and eager's strides are the CPU's: what follows was compiled for the
        # others.
        self.writeline(f"{name} = causeway_laid_out({name}, {size}, {stride}, {op_name!r})")

    def write_async_compile_wait(self) -> None:
        super().write_async_compile_wait()
        self.prefix.writeline(f"causeway_extern = {_by_ladder_names()!r}")
        self.prefix.writeline(f"causeway_graph = {str(V.graph.name or '')!r}")
        self.prefix.writeline("causeway_build(globals())")

    def _generate_kernel_call_helper(
        self,
        kernel_name: str,
        call_args: Any,
        *,
        device: Any = None,
        triton: bool = True,
        **more: Any,
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type == chip.device_name():
            self.writeline(self.wrap_kernel_call(kernel_name, [str(a) for a in call_args]))
        else:
            super()._generate_kernel_call_helper(
                kernel_name, call_args, device=device, triton=triton, **more
            )

    def generate_after_suffix(self, result: Any) -> None:
        super().generate_after_suffix(result)
        devices = [d for d in V.graph.device_types if d == chip.device_name()]
        if not (torch._inductor.config.triton.cudagraphs and devices) or isinstance(
            self, SubgraphWrapper
        ):
            return
        if config.get("compile") == "check":  # it waits, and reads what kernels wrote
            return
        inputs = list(V.graph.graph_inputs)
        mutated = tuple(inputs.index(n) for n in V.graph.mutated_inputs if n in inputs)
        device = max(V.graph.device_idxs, default=0)
        name = f"{V.graph.graph_id}{' backward' if V.graph.is_backward else ''}"
        result.writeline("from causeway.compile.replay import replayed as causeway_replayed")
        given = f"{device}, {mutated!r}, {name!r}, {_not_replayable()!r}"
        result.writeline(f"call = causeway_replayed(call, {given})")

    def make_allocation(self, name: str, device: Any, *given: Any, **more: Any) -> str:
        text = str(super().make_allocation(name, device, *given, **more))
        if device.type == chip.device_name():  # with the index, which Inductor leaves out
            text = text.replace(
                f"device='{device.type}'", f"device='{device.type}:{device.index or 0}'"
            )
        return text


def _not_replayable() -> str:
    """Why the graph at hand cannot be a device graph, as far as that shows in the graph, or ""."""
    used = V.graph.device_node_mapping
    on_cpu = used.get(torch.device("cpu"))
    if on_cpu is not None:
        lines = _source_lines([on_cpu, *on_cpu.users])
        where = f" (at {lines[0]})" if lines else ""
        return f"it has tensors of the CPU{where}: move them to the device, or give a number"
    if len({d.index or 0 for d in used if d.type == chip.device_name()}) > 1:
        return "it has tensors of several devices"
    return ""


class SubgraphWrapper(SubgraphPythonWrapperCodegen, Wrapper):
    """The same within a graph: of torch.cond and its like."""

    def causeway_program(self, device: int) -> str:
        return str(self.parent_wrapper.causeway_program(device))


class DeviceText(DeviceOpOverrides):
    """What generated Python says of devices and streams."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from causeway.compile.interface import get_raw_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        return f"torch.accelerator.set_device_index({device_idx})"

    def synchronize(self) -> str:
        return "torch.accelerator.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.{chip.device_name()}.device({device_idx})"

    def current_stream(self) -> str:
        return f"torch.{chip.device_name()}.current_stream()"


# Operators that Inductor would put into a kernel, and the dialect has no text for.
WITHOUT_TEXT = frozenset(
    [
        "digamma",
        "special_digamma",
        "erfinv",
        "special_erfinv",
        "erfcx",
        "special_erfcx",
        "i0",
        "special_i0",
        "special_i0e",
        "special_i1",
        "special_i1e",
        "igamma",
        "igammac",
        "polygamma",
        "special_zeta",
        "special_ndtri",
        "special_ndtr",
        "special_log_ndtr",
        "special_bessel_j0",
        "special_bessel_j1",
        "special_bessel_y0",
        "special_bessel_y1",
        "special_modified_bessel_i0",
        "special_modified_bessel_i1",
        "special_modified_bessel_k0",
        "special_modified_bessel_k1",
        "special_scaled_modified_bessel_k0",
        "special_scaled_modified_bessel_k1",
        "special_spherical_bessel_j0",
        "special_airy_ai",
        "special_chebyshev_polynomial_t",
        "special_chebyshev_polynomial_u",
        "special_chebyshev_polynomial_v",
        "special_chebyshev_polynomial_w",
        "special_hermite_polynomial_h",
        "special_hermite_polynomial_he",
        "special_laguerre_polynomial_l",
        "special_legendre_polynomial_p",
        "special_shifted_chebyshev_polynomial_t",
        "special_shifted_chebyshev_polynomial_u",
        "special_shifted_chebyshev_polynomial_v",
        "special_shifted_chebyshev_polynomial_w",
        "frexp",
        "_assert_async",
    ]
)
# Sums over an index: the ladder's kernels are parallel, and give the same bits at each run.
SUMS_OVER_INDEX = frozenset({"scatter_add", "scatter_reduce", "index_add"})
PUTS = frozenset({"index_put", "_unsafe_index_put"})
# Inductor's own lowering is wrong (torch 2.13, on the CPU too): with ceil_mode it divides the last
# windows by a size without padding, and a divisor of one's own is refused.
POOL_BACKWARDS = frozenset({"avg_pool2d_backward", "avg_pool3d_backward"})


# Where their arguments have the size of a window. The ladder's kernels for CPUs read rows as
# vectors; a fused one has a load with a condition for each place of a window, which pays for a few
# places alone.
MAX_POOLS = {"max_pool2d_with_indices": 1, "max_pool2d_with_indices_backward": 2}


class Pass(CustomGraphModulePass):
    """Marks what goes by the ladder and not into a kernel, and tells Inductor's caches what a
    graph's code depends on besides the graph."""

    def __call__(self, gm: Any) -> None:
        bring_first_to_device(gm.graph)
        integers.chain(gm.graph)
        integers.lay_out(gm.graph)
        for node in gm.graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload) and by_ladder(node):
                node.meta["should_fallback"] = True

    def uuid(self) -> str:
        return cache_key()


def bring_first_to_device(graph: Any) -> None:
    """Copy a CPU scalar to the device where it comes first, as in `scalar + tensor`: Inductor takes
    the device of the first argument for that of the result, and would give a kernel of the CPU the
    device's memory.
    """
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if not isinstance(node.target, torch._ops.OpOverload) or not _on_device(value):
            continue
        first = next(
            (a for a in node.args if isinstance(getattr(a, "meta", {}).get("val"), torch.Tensor)),
            None,
        )
        given = None if first is None else first.meta["val"]
        others = any(_on_device(a.meta.get("val")) for a in node.all_input_nodes)
        if given is None or given.device.type != "cpu" or given.dim() or not others:
            continue
        with graph.inserting_before(node):
            moved = graph.call_function(torch.ops.prims.device_put.default, (first, value.device))
            moved.meta["val"] = given.to(value.device)
        node.args = tuple(moved if a is first else a for a in node.args)


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == chip.device_name()


def by_ladder(node: Any) -> bool:
    """Whether an operator of a graph is called, and not fused."""
    if not chip.has_compiler():
        return True
    name = node.target._schema.name.partition("::")[2].rstrip("_")
    if name in WITHOUT_TEXT or name in SUMS_OVER_INDEX:
        return True
    if name in PUTS and len(node.args) > 3 and node.args[3]:
        return True
    if name in MAX_POOLS:
        value, window = node.args[0].meta["val"], node.args[MAX_POOLS[name]]
        places = math.prod(window) if len(window) > 1 else window[0] ** 2
        if places > 4 and _on_device(value) and chip.is_in_turn(value.device):
            return True
    if name in POOL_BACKWARDS:
        ceil_mode, _, divisor = [*node.args, *[None] * 8][5:8]
        return bool(ceil_mode) or divisor is not None
    values = [node.meta.get("val"), *(a.meta.get("val") for a in node.all_input_nodes)]
    for value in values:
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != chip.device_name():
                continue
            code = chip.code(tensor.device.index or 0)
            if tensor.dtype not in MEMORY:
                return True
            if tensor.dtype == torch.float64 and not code.has_float64:
                return True
    return False


@functools.cache
def cache_key() -> str:
    """Causeway, its generator, the vendor, its driver and the device, as one hash."""
    found = hashlib.sha256(causeway.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    state = _C.vendor_state()
    found.update(repr([state.get(key) for key in ("name", "version", "abi_version")]).encode())
    for device in range(_C.device_count()):
        info = _C.compiler_info(device)
        found.update(repr([_C.device_info(device)["name"], sorted((info or {}).items())]).encode())
    return found.hexdigest()


def register() -> None:
    """Give Inductor the device's backend."""
    name = chip.device_name()
    names.register_device_op_overrides(name, DeviceText())
    names.register_backend_for_device(name, Scheduling, Wrapper, Wrapper, device_custom_pass=Pass())
    _keep_puts_apart()


def _keep_puts_apart() -> None:
    """What goes by the ladder is not put in place: Inductor takes the result of such a call for a
    buffer of its own, and gives the memory that it lies in to another one.
    """
    for operator, known in list(names.inplaceable_ops.items()):
        if getattr(operator, "_opname", "") not in PUTS:
            continue

        def check(node: Any, before: Any = known.extra_check) -> bool:
            return bool(before(node)) and "should_fallback" not in node.meta

        names.inplaceable_ops[operator] = dataclasses.replace(known, extra_check=check)
