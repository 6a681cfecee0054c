"""What follows a product or a convolution, in the product's own kernel: bias, activation, scale.

Inductor fuses what is pointwise with a template that comes before it. So calls of products that go
to a portable kernel (csrc/portable/epilogue.h) become templates, before Inductor schedules a graph.
The text of what follows is handed to the call at run time. Where the ladder takes another way after
all, the same operators run as a kernel of their own, which is built then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor import config

from causeway import _C
from causeway.compile import chip, names
from causeway.compile.dialect import computed
from causeway.compile.kernel import Kernel, finished, operations_of
from causeway.compile.kernel_text import KernelText
from causeway.compile.lines import noting
from causeway.compile.names import OrderedSet, SIMDKernelFeatures, V, sympy_product
from causeway.compile.overrides import Overrides, through_memory

# What calls of products are called in a graph, and the operator that the ladder gets.
PRODUCTS = {
    "extern_kernels.mm": "aten::mm.out",
    "extern_kernels.addmm": "aten::addmm.out",
    "extern_kernels.bmm": "aten::bmm.out",
    "extern_kernels.baddbmm": "aten::baddbmm.out",
    "extern_kernels.convolution": "aten::convolution",
}


def make_templates() -> None:
    """Make templates of a graph's products, as far as their kernels take an epilogue."""
    if config.epilogue_fusion:
        for operation in V.graph.operations:
            if _takes_epilogue(operation):
                _make_template(operation)


def _takes_epilogue(node: Any) -> bool:
    if not isinstance(node, (names.ExternKernelOut, names.ExternKernelAlloc)):
        return False
    layout = node.layout
    if (
        node.python_kernel_name not in PRODUCTS
        or not isinstance(layout, names.FixedLayout)
        or layout.device.type != chip.device_name()
        or getattr(node, "output_view", None) is not None
        or not layout.is_contiguous()
        or not all(isinstance(x, (names.Buffer, names.ReinterpretView)) for x in node.inputs)
        or not all(isinstance(x.layout, names.Layout) for x in node.inputs)
        or not all(x.get_dtype() == layout.dtype for x in node.inputs)
    ):
        return False
    if "convolution" in node.python_kernel_name and not _is_product(node):
        return False
    return bool(_C.goes_portable(PRODUCTS[node.python_kernel_name], layout.dtype, _index(node)))


def _is_product(convolution: Any) -> bool:
    """Neither a transposed convolution, nor one whose groups are of one channel."""
    out, channels = convolution.inputs[1].get_size()[:2]
    equal = V.graph.sizevars.statically_known_equals
    alone = equal(channels, 1) and equal(out, convolution.kwargs["groups"])
    return not convolution.kwargs["transposed"] and not alone


def _index(node: Any) -> int:
    return int(node.layout.device.index or 0)


def _make_template(node: Any) -> None:
    """Change an extern call's class, so that all that refers to it stays as it is."""
    node.__class__ = _template_class(type(node))
    node.make_kernel_render = None
    node.annotations = {}
    node.epilogue_fusable_outputs = {}
    node._multi_output_children = {}
    node._named_inputs = {}
    node.mutated_inputs = None
    node.mutation_outputs = []
    node.allowed_prologue_inps = OrderedSet()
    node.allow_epilogue_fusion = True
    node.allow_prologue_fusion = False


_classes: dict[type, type] = {}


def _template_class(of: type) -> type:
    if of not in _classes:
        kept = {name: getattr(of, name) for name in ("should_allocate", "codegen")}
        _classes[of] = type(f"Template{of.__name__}", (names.TemplateBuffer, of), kept)
    return _classes[of]


# --- what is fused --------------------------------------------------------------------------------


def is_epilogue(template: Any, after: Any) -> bool:
    """Whether a node of the scheduler can be done in the kernel of the product before it."""
    before = template.get_nodes()
    (product,) = [node for node in before if node.is_template()]
    buffer = product.get_outputs()[0]
    if after.is_reduction() or after.is_template() or after.has_aliasing_or_mutation():
        return False
    nodes = [*before, *after.get_nodes()]
    if any(use.node not in nodes and use.node is not after for use in buffer.users):
        return False  # its memory is read elsewhere
    _, (numel, _) = product.group
    (write,) = product.read_writes.writes
    if chip.code(_index(product.node)).in_turn and not _pays_in_turn([*before, *after.get_nodes()]):
        return False
    reads_it = False
    for node in after.get_nodes():
        if getattr(node, "_body", None) is None or node._body.subblocks:
            return False
        _, (own, reduced) = node.group
        if own != numel or reduced != 1:
            return False
        for dep in (*node.read_writes.reads, *node.read_writes.writes):
            if not isinstance(dep, names.MemoryDep) or dep.is_indirect() or dep.mode is not None:
                return False
            found = V.graph.try_get_buffer(dep.name)
            if found is None or found.get_device() != product.node.get_device():
                return False
            if dep.name == buffer.get_name():
                reads_it = True
                if dep.normalize().index != write.normalize().index:
                    return False
    return reads_it or len(before) > 1


# Operations of a loop's body that are few instructions of a vector.
_CHEAP = frozenset(
    """
    load store constant to_dtype get_index index_expr add sub mul neg maximum minimum relu abs where
    eq ne lt le gt ge logical_and logical_or logical_not identity round
    """.split()  # noqa: SIM905 - a line of names is read at once
)
_MOST = 8
# Dtypes that a float becomes in many instructions.
_LONG_STEPS = frozenset(
    [torch.float16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
)


def _may_be_turned(product: Any) -> bool:
    """Whether a CPU may compute a product's columns as rows (matmul.cpp): then the elements of a
    tile that lie side by side are as few as it has rows."""
    if "convolution" in product.python_kernel_name:
        return False
    known = V.graph.sizevars
    a, b = product.inputs[-2:]
    _, row, column = _sizes(product)
    if not known.statically_known_equals(b.get_stride()[-2], 1):
        return False
    return not (
        known.statically_known_equals(a.get_stride()[-1], 1)
        and known.statically_known_geq(row, column)
    )


def _pays_in_turn(nodes: list[Any]) -> bool:
    """Whether a product's kernel of a CPU is the place for what follows it.

    A tile's rows are short. A function of its own (exp, erf, tanh) becomes no vectors there: GELU
    and tanh after a layer of 384 to 1536 took 1.9 and 1.7 of the time, SiLU 1.4; the square root
    and division of a batch norm, once a row of a tile, take as long as the pass over memory that is
    saved. What is read by a reduction is computed in the reduction's kernel. A cast to bfloat16
    took 0.67 to 0.98 of both kernels' time, one from it 0.73 to 0.98. A float16 is a dozen
    instructions: of products in it ReLU took 1.10 to 1.18. Casts to it and steps to integers took
    0.64 to 0.98 in products by rows and in convolutions, and 1.05 to 1.12 in turned products.
    With max_autotune both ways are measured (runtime.Product).
    """
    work = 0
    (product,) = [node.node for node in nodes if node.is_template()]
    if product.get_dtype() == torch.float16 and not config.max_autotune:
        return False
    long = not config.max_autotune and _may_be_turned(product)
    for node in nodes:
        if node.is_template():
            continue
        for out in node.get_outputs():
            if any(use.node.is_reduction() for use in out.users):
                return False
            if long and V.graph.get_dtype(out.get_name()) in _LONG_STEPS:
                return False
        for call in node._body.root_block.graph.nodes:
            cheap = call.op != "call_method" or str(call.target) in _CHEAP
            if not (cheap or config.max_autotune):
                return False
            work += operations_of(call)
    return work <= _MOST or config.max_autotune


# --- its text -------------------------------------------------------------------------------------


def _uncontracted(text: str, *of: Any) -> str:
    """A float that is rounded before anything is added to it."""
    return f"ROUNDED({text})" if any(computed(d).is_floating_point for d in of) else text


class EpilogueOverrides(Overrides):
    """The numbers of a kernel of its own. GCC makes one operation of `a * b + c` in products
    (gemm.cpp), and in no other kernel of ours."""

    @staticmethod
    def mul(a: Any, b: Any) -> str:
        return _uncontracted(Overrides.mul(a, b), a.dtype, b.dtype)

    @staticmethod
    def square(a: Any) -> str:
        return _uncontracted(Overrides.square(a), a.dtype)

    @staticmethod
    def mul_rn(a: Any, b: Any) -> str:
        return _uncontracted(Overrides.mul_rn(a, b), a.dtype, b.dtype)


class EpilogueKernel(Kernel):
    """The same operators as a `Kernel`, of the value `v` of one element: as it would be in the
    product's memory."""

    overrides = EpilogueOverrides

    def __init__(self, tiling: Any, product: Any, **kwargs: Any) -> None:
        self.product = product
        self.flat_outputs: OrderedSet[str] = OrderedSet()
        self.fits = True  # elements are taken in the order in which the product has them
        super().__init__(tiling, **kwargs)

    def _form(self) -> str:
        return "items"

    def _dynamic(self) -> list[Any]:
        return []

    def load(self, name: str, index: sympy.Expr) -> Any:
        if name != self.product.get_name():
            return super().load(name, index)
        if self._load_mask or self._at(self.prepare_indexing(index)) != "AT":
            self.fits = False
        dtype = V.graph.get_dtype(name)
        value = _uncontracted(through_memory("v", dtype), computed(dtype))
        return self.cse.generate(self.loads, value, dtype=computed(dtype))

    def store(self, name: str, index: sympy.Expr, value: Any, mode: Any = None) -> None:
        if self._is_flat(self.prepare_indexing(index)):
            self.flat_outputs.add(name)
        super().store(name, index, value, mode)

    def _at(self, index: sympy.Expr) -> str:
        return "AT" if self._is_flat(index) else super()._at(index)

    def _is_flat(self, index: sympy.Expr) -> bool:
        """Whether an index counts the elements from the first to the last."""
        (tree,) = [t for t in self.range_trees if not t.is_reduction]
        entries = [e for e in self._entries(tree) if e.symbol() in index.free_symbols]
        flat = sum((e.symbol() * e.divisor for e in entries), sympy.S.Zero)
        size = sympy_product([e.length for e in entries])
        # A stride is at least 1, also of a size that may be 0; then there are no elements.
        index = index.xreplace(V.graph.sizevars.inv_precomputed_replacements)
        index = index.replace(_is_at_least_1, lambda e: next(a for a in e.args if a != 1))
        return sympy.expand(index - flat) == 0 and V.graph.sizevars.statically_known_equals(
            size, tree.numel
        )

    def codegen_kernel(self, name: str | None = None) -> Any:
        self.codegen_body()
        (tree,) = [t for t in self.range_trees if not t.is_reduction]
        used = finished(self.body._lines)
        lines = used.splitlines()
        digits = [
            f"const idx {e.name} = {self._place_of(e)};"
            for e in self._entries(tree)
            if re.search(rf"\b{e.name}\b", used)
        ]
        row, element = _by_rows([_AXIS.sub(r"at_\1", line) for line in (*digits, *lines)])
        self.row = "\n".join(row)
        self.text = KernelText("epilogue", self.parameters(), "\n".join(element), 1.0)
        return self.text.body

    def _place_of(self, entry: Any) -> str:
        batch, row, column = _sizes(self.product)
        equal = V.graph.sizevars.statically_known_equals
        if equal(entry.divisor, 1) and equal(entry.length, entry.root.numel):
            return "AT"
        if equal(entry.divisor, 1) and equal(entry.length, column):
            return "AT_COLUMN"
        if equal(entry.divisor, column) and equal(entry.length, row):
            return "AT_ROW"
        if equal(entry.divisor, row * column) and equal(entry.length, batch):
            return "AT_BATCH"
        return self._digit(entry, "AT")


def _is_at_least_1(expr: Any) -> bool:
    return isinstance(expr, names.Max) and len(expr.args) == 2 and sympy.S.One in expr.args


_AXIS = re.compile(r"\b([xy]\d+)\b")
_DEFINITION = re.compile(r"(?:const )?\w+ (\w+) = (.*);$")
_VARIABLE = re.compile(r"\b(?:tmp\d+|at_\w+|AT\w*|v)\b")


def _by_rows(lines: list[str]) -> tuple[list[str], list[str]]:
    """(what is the same for all elements of a row, the rest)."""
    known = {"AT_ROW"}
    row, element = [], []
    for line in lines:
        found = _DEFINITION.fullmatch(line)
        if found and known.issuperset(_VARIABLE.findall(found[2])):
            known.add(found[1])
            row.append(line)
        else:
            element.append(line)
    return row, element


def _sizes(product: Any) -> tuple[Any, Any, Any]:
    """(batch, row, column) of a product's result."""
    size = product.get_size()
    if "convolution" in product.python_kernel_name:
        return size[0], size[1], sympy_product(size[2:])
    return (sympy.S.One if len(size) == 2 else size[0]), size[-2], size[-1]


# --- the call -------------------------------------------------------------------------------------


@dataclass
class ProductLine(names.WrapperLine):
    """A product's call with what follows it, as a line of a graph's Python."""

    wrapper: Any
    node: Any
    kernel: str
    out: str
    finish: list[str]  # the epilogue's arguments
    apart: list[str]  # those of the kernel of its own: units first, None for the product

    def codegen(self, code: Any) -> None:
        node = self.node
        arguments = [*node.codegen_args(), *node.codegen_kwargs()]
        if isinstance(node, names.ExternKernelOut):
            arguments = [*node.codegen_args(), *node.codegen_kwargs(skip_out=True)]
            arguments.append(f"out={self._as_product()}")
        call = f"lambda: {node.get_kernel_name()}({', '.join(arguments)})"
        finish, apart = ", ".join([call, *self.finish]), ", ".join(self.apart)
        code.writeline(f"{self.kernel}({self.out}, ({finish}), ({apart}))")

    def _as_product(self) -> str:
        """Memory for the product: that of what is written, in the product's sizes and dtype, or
        some of its own, which the product's kernel leaves alone where it does what follows."""
        layout, given = self.node.layout, V.graph.get_buffer(self.out).get_layout()
        if layout.dtype != given.dtype:
            made = self.wrapper.make_allocation(
                "product", layout.device, layout.dtype, layout.size, layout.stride
            )
            return str(made).partition(" = ")[2]
        if list(layout.size) == list(given.size):
            return self.out
        tuple_of = self.wrapper.codegen_python_shape_tuple
        size, stride = tuple_of(layout.size), tuple_of(layout.stride)
        return f"reinterpret_tensor({self.out}, {size}, {stride}, 0)"

    def codegen_fx(self, converter: Any) -> Any:
        raise NotImplementedError("torch.compile's FX wrapper and epilogues")


def write_product(scheduling: Any, template: Any, after: list[Any]) -> bool:
    """Write a product's call together with the nodes `after` it. False: that is not possible, and
    nothing is written."""
    product, wrapper = template.node, V.graph.wrapper_code
    _, (numel, _) = template.group
    schedule = scheduling.generate_node_schedule(after, numel, sympy.S.One)
    features = SIMDKernelFeatures(schedule, numel)
    tiling = {"x": numel, "r0_": sympy.S.One}
    with config.patch(inplace_buffers=False):
        finish = EpilogueKernel(tiling, product, features=features)
        apart = Kernel(tiling, features=features)
        scheduling.codegen_node_schedule_with_kernel(schedule, finish)
        scheduling.codegen_node_schedule_with_kernel(schedule, apart)
        for kernel in (finish, apart):
            with V.set_kernel_handler(kernel):
                kernel.codegen_kernel()
    out = _result(product, finish)
    if out is None or not finish.fits or finish.tells or finish.scatters or finish.alone:
        return False
    nodes = scheduling.operators_of(template, after)
    name = scheduling.define_product(product, finish.row, finish.text, apart.text, nodes)
    V.graph.removed_buffers.add(product.get_name())
    V.graph.removed_buffers |= apart.removed_buffers
    template.mark_run()
    with V.set_kernel_handler(apart):
        for node in after:
            node.mark_run()
    if noting():
        wrapper.say_line(nodes)
    own = product.get_name()
    given = ["None" if a == own else a for a in apart.call_arguments(name)[0]]
    line = ProductLine(wrapper, product, name, out, finish.call_arguments(name)[0][1:], given)
    wrapper.writeline(line)
    scheduling.free_buffers_in_scheduler()
    return True


def _result(product: Any, kernel: EpilogueKernel) -> str | None:
    """What is written in the product's order: a buffer of its dtype, in whose memory the product
    can be too, or else of any."""
    found = []
    for name, argument in kernel.args.output_buffers.items():
        if isinstance(argument, names.RemovedArg):
            continue
        layout = V.graph.get_buffer(name).get_layout()
        if (
            name in kernel.flat_outputs
            and isinstance(layout, names.FixedLayout)
            and layout.offset == 0
        ):
            found.append((layout.dtype != product.get_dtype(), str(name)))
    return min(found)[1] if found else None
