"""Which operators a vendor can be asked for, and how their arguments arrive.

Read from the schemas of the torch that is installed, never copied: `header` writes
include/causeway/operators.hpp, a C++ type for each operator, and `markdown` docs/operators.md. It
says in Python what csrc/ladder/device_call.cpp does: outputs first, then the other arguments; the
form that writes into given outputs serves the others. A test lets operators of every sort arrive.

Left out are operators that no kernel is called for: composites, which torch takes apart before
they reach a device; views; results that are no tensors; types that abi.h has no form for; and
results whose shape torch cannot tell, since it has no meta kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from causeway import _C
from causeway.ops import facts

# torch's type of an argument: the C++ type of op.hpp, and the tag of abi.h.
_TYPES = {
    "Tensor": ("Tensor", "TENSOR"),
    "number": ("Scalar", "number"),
    "int": ("int64_t", "INT"),
    "float": ("double", "DOUBLE"),
    "bool": ("bool", "BOOLEAN"),
    "str": ("string_view", "STRING"),
    "ScalarType": ("Dtype", "DTYPE"),
    "MemoryFormat": ("MemoryFormat", "INT"),
    "Layout": ("Layout", "INT"),
    "Device": ("Device", "INT"),
    "Generator": ("Philox", "GENERATOR"),
    "List[int]": ("List<int64_t>", "INT_LIST"),
    "List[float]": ("List<double>", "DOUBLE_LIST"),
    "List[bool]": ("List<bool>", "BOOLEAN_LIST"),
    "List[number]": ("List<Scalar>", "SCALAR_LIST"),
    "List[Tensor]": ("List<Tensor>", "TENSOR_LIST"),
    "List[Optional[Tensor]]": ("List<optional<Tensor>>", "TENSOR_LIST"),
}

# torch's operators, and Causeway's own: steps of recurrent layers, layers in integers.
_NAMESPACES = ("aten", "causeway")
# Without a kernel for the CPU: composites, and kernels of ours that ask for the vendor's.
_REACHED: tuple[facts.Reach, ...] = ("whole", "offered", "own")
_COMPOSITE = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
# Of C++, as far as a schema could have them.
# fmt: off
_KEYWORDS = frozenset({
    "and", "auto", "bool", "break", "case", "char", "class", "const", "default", "delete", "do",
    "double", "else", "enum", "export", "float", "for", "if", "inline", "int", "long", "new", "not",
    "operator", "or", "private", "public", "register", "return", "short", "signed", "static",
    "struct", "switch", "template", "this", "throw", "typename", "union", "unsigned", "using",
    "virtual", "void", "volatile", "while", "xor",
})
# fmt: on
# What a type of that name would hide.
_TAKEN = {word for cpp, _ in _TYPES.values() for word in re.findall(r"\w+", cpp)}
_TAKEN |= {"Operator", "Pointwise"}


@dataclass(frozen=True)
class Argument:
    """One place of the boxed call."""

    name: str
    type: str  # torch's: "List[int]"
    optional: bool  # may be CW_NONE

    @property
    def cpp(self) -> str:
        """Its declaration: "optional<int64_t> dim"."""
        cpp = _TYPES[self.type][0]
        name = self.name + "_" * (self.name in _KEYWORDS)
        return f"optional<{cpp}> {name}" if self.optional else f"{cpp} {name}"

    @property
    def tag(self) -> str:
        """Its tag of abi.h, less CW_: "INT?" where it may be CW_NONE."""
        return _TYPES[self.type][1] + "?" * self.optional


@dataclass(frozen=True)
class Operator:
    """An overload, as a vendor is asked for it."""

    name: str  # "aten::add.out"
    outputs: tuple[Argument, ...]
    inputs: tuple[Argument, ...]  # all other arguments
    pointwise: bool
    serves: tuple[str, ...] = ()  # other forms that the core derives from this one
    served_by: str = ""  # the form that this one is derived from

    @property
    def namespace(self) -> str:
        """Whose it is: "aten"."""
        return self.name.partition("::")[0]

    @property
    def identifier(self) -> str:
        """Its C++ name in `namespace`: "add_out"."""
        return re.sub(r"\W", "_", self.name.partition("::")[2])

    @property
    def cpp(self) -> str:
        """Its C++ type, on one line."""
        base = "Pointwise" if self.pointwise else "Operator"
        arguments = ", ".join(a.cpp for a in (*self.outputs, *self.inputs))
        return (
            f"struct {self.identifier} : {base}<{len(self.outputs)}, void({arguments})> "
            f'{{ static constexpr const char* name = "{self.name}"; }};'
        )


@cache
def operators() -> tuple[Operator, ...]:
    """All operators that a vendor can be asked for, by name."""

    schemas = _schemas()
    forms: dict[str, Operator] = {}
    serves: dict[str, list[str]] = {}
    # An operator that is called without a kernel of ours is in the list from then on.
    reached = {name for by in _REACHED for name in facts.reached(by)}
    reached |= {*filter(_has_kernel, _C.operators())}
    own = (name for name in schemas if name.startswith(f"{_NAMESPACES[1]}::"))
    reached |= {name for name in own if not _has(name, _COMPOSITE[:1])}  # a call of others
    for name in sorted(reached & {*schemas}):
        operator = _operator(schemas[name], name)
        if operator is None or (operator.outputs and not _has_shapes(name)):
            continue
        out = _C.out_form(name)
        if out and (of := _operator(schemas[out], out)):
            serves.setdefault(out, []).append(name)
            forms.setdefault(out, of)
        forms[name] = _replace(operator, served_by=out)
        fact = facts.of(name)
        if fact.other_name and fact.left_out < 0:  # else its arguments are others
            forms[fact.other_name] = _replace(operator, name=fact.other_name)
    for out, names in serves.items():
        # torch tags no out= form that its code generator made.
        pointwise = any(forms[name].pointwise for name in (out, *names))
        forms[out] = _replace(forms[out], serves=tuple(names), pointwise=pointwise)
    found = tuple(forms[name] for name in sorted(forms))
    for namespace in _NAMESPACES:
        known = [o.identifier for o in found if o.namespace == namespace]
        assert len({*known} - _KEYWORDS - _TAKEN) == len(known)
    return found


def describe(pattern: str) -> str:
    """The operators whose name contains `pattern`, for people: C++ name, arguments, forms."""
    text = ""
    for o in operators():
        if pattern not in o.name:
            continue
        text += f"{o.name}  cw::{o.namespace}::{o.identifier}\n"
        text += f"    {', '.join(a.cpp for a in (*o.outputs, *o.inputs))}\n"
        if o.serves:
            text += f"    serves {', '.join(o.serves)}\n"
        if o.served_by:
            text += f"    served by {o.served_by}\n"
    return text


# --- what a schema says ---------------------------------------------------------------------------


@cache
def _schemas() -> dict[str, Any]:
    known = tuple(f"{namespace}::" for namespace in _NAMESPACES)
    return {_name(s): s for s in torch._C._jit_get_all_schemas() if s.name.startswith(known)}


def _name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}".removesuffix(".")


def _replace(operator: Operator, **changes: Any) -> Operator:
    return Operator(**{**operator.__dict__, **changes})


def _has(name: str, keys: Sequence[str]) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def _has_kernel(name: str) -> bool:
    return _has(name, ["CPU"])


def _has_shapes(name: str) -> bool:
    """Whether torch can tell the shapes of the outputs. A fallback is no meta kernel."""
    return _has(name, ("Meta", *_COMPOSITE))


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _argument(argument: Any) -> Argument | None:
    kind = str(argument.real_type)
    bare = re.sub(r"^Optional\[(.*)\]$", r"\1", kind)
    if bare not in _TYPES:
        return None
    # The core makes a generator's numbers up where none was given.
    return Argument(argument.name, bare, bare != kind and bare != "Generator")


def _operator(schema: Any, name: str) -> Operator | None:
    """The places of the boxed call, or None where no kernel could be called."""
    arguments = [_argument(a) for a in schema.arguments]
    results = [r for r in schema.returns if str(r.type) == "Tensor"]
    views = [r for r in results if r.alias_info is not None and not r.alias_info.is_write]
    if None in arguments or len(results) != len(schema.returns) or views:
        return None
    known = [a for a in arguments if a is not None]
    # A result that is an argument comes once, in the place of the result.
    masked = any(a.name == "output_mask" for a in known)
    outputs, taken = [], set()
    for number, result in enumerate(results):
        index = _argument_of(schema, result)
        if index is not None:
            taken.add(index)
            given = known[index]
            outputs.append(Argument(given.name, given.type, given.optional or masked))
        else:
            own = result.name or ("out" if len(results) == 1 else f"out{number}")
            outputs.append(Argument(own, "Tensor", masked))
    inputs = [a for i, a in enumerate(known) if i not in taken]
    packet, _, overload = name.partition(".")
    tags = torch._C._get_operation_overload(packet, overload)[2]
    return Operator(name, tuple(outputs), tuple(inputs), torch.Tag.pointwise in tags)


def _argument_of(schema: Any, result: Any) -> int | None:
    if result.alias_info is None:
        return None
    for index, argument in enumerate(schema.arguments):
        if _writes(argument) and argument.alias_info.before_set & result.alias_info.after_set:
            return index
    return None


@cache
def _overloads() -> dict[str, list[Any]]:
    named: dict[str, list[Any]] = {}
    for name in sorted(_schemas()):
        schema = _schemas()[name]
        named.setdefault(schema.name, []).append(schema)
    return named


# --- what is written ------------------------------------------------------------------------------


def torch_version() -> str:
    """The release that schemas may differ by: "2.13"."""
    return ".".join(torch.__version__.split(".")[:2])


def header() -> str:
    """The text of operators.hpp."""
    lines = [
        f"// Operators of torch {torch_version()} that a vendor can be asked for, a type each.",
        "//",
        "// Written by `causeway operators --header` from the schemas of the torch that is "
        "installed; do not edit. Schemas differ",
        "// between releases: write your own with the torch you build for, and include it in place "
        "of this file. A kernel built",
        "// for another release's arguments answers CW_INVALID with words, and so does no harm.",
        "//",
        "// aten::add.out is cw::aten::add_out. Outputs first, in the order of the returns, then "
        "the other arguments in the",
        "// schema's order; what an operator changes in place is its output.",
        "#ifndef CAUSEWAY_OPERATORS_HPP",
        "#define CAUSEWAY_OPERATORS_HPP",
        "",
        '#include "causeway/op.hpp"',
        "",
        "// clang-format off",
        *_namespaces(),
        "// clang-format on",
        "#endif  // CAUSEWAY_OPERATORS_HPP",
    ]
    return "\n".join(lines) + "\n"


def _namespaces() -> Iterator[str]:
    for namespace in _NAMESPACES:
        yield f"namespace cw::{namespace} {{"
        yield from (o.cpp for o in operators() if o.namespace == namespace)
        yield f"}}  // namespace cw::{namespace}"


_PAGE = """\
# Operators

Written by `causeway operators --markdown` from the schemas of torch {version}; `causeway operators
softmax` prints those whose name has `softmax`, as C++ types. How to write a kernel is in
[softmax.md](softmax.md).

## Which name the core asks for

`op_find` gets torch's name, `aten::<operator>.<overload>`, or `aten::<operator>` where the overload
has none. It is asked once per name and process; `CW_UNSUPPORTED` is the answer for what you do not
have. torch takes composite operators apart before they reach a device: `torch.softmax` arrives as
`aten::_softmax`, `linear` as `aten::addmm`. What a program really calls is in the ledger:
`CAUSEWAY_LEDGER=1`.

**Write the form that writes into given outputs**, `.out` mostly. A call of another form that you do
not offer is served by it: the core allocates the outputs of `aten::mm` and calls `aten::mm.out`; for
`aten::add_.Tensor` it calls `aten::add.out`, with `self` as output and as input. The ledger says
`native` where the call itself had this form and its tensors were taken as they were, `derived` where
another form was asked for or inputs were prepared. The column "serves" below has the other forms.
Offer one of these too only if its kernel does better. Its arguments are those of the row, and an
in-place form's `self` comes once, as the output.

Operators over lists, `aten::_foreach_*`, are asked for too: `aten::_foreach_add.Scalar_out` serves
`_foreach_add.Scalar` and `_foreach_add_.Scalar`, with the list of outputs first. Nothing is prepared
for them: lists that do not have what the kernel needs, or that it declines, go tensor by tensor, as
do lists that share memory and, in place, results of another dtype than their targets.

Operators of other libraries are asked for by their own name, such as `mylib::op`, also where the
library is imported after the device was used. One that torch can take apart (`custom_op`, a composite)
is asked for where the vendor names it in `operators.v1`: [vendor.md](vendor.md). Causeway's own are
at the end of the table: steps of recurrent layers ([vendor.md](vendor.md)) and layers in integers
([quantize.md](quantize.md)).

## How arguments arrive

Outputs first, in the order of the schema's returns; then the other arguments in the schema's order,
with nothing left out: defaults are filled in. A tensor that the operator changes and returns comes
once, as its output. One that it changes and does not return has its place in the schema's order, as
have the lists of `_fused_adam_`.

| tag | `cw_arg` | C++ | what |
| --- | --- | --- | --- |
| `NONE` | | `optional<...>` | an optional argument that was not given; an output that `output_mask` switched off |
| `INT` | `i` | `int64_t` | an int, also a symbolic one |
| | `i` | `MemoryFormat`, `Layout` | torch's number of it |
| | `i` | `Device` | the index; -1 where none was given |
| `DOUBLE` | `d` | `double` | a float |
| `BOOLEAN` | `i` | `bool` | 0 or 1 |
| `COMPLEX` | `complex` | | real and imaginary part, of a number |
| number | | `Scalar` | `INT`, `DOUBLE`, `BOOLEAN` or `COMPLEX`, as the caller gave it |
| `DTYPE` | `i` | `Dtype` | the bit number of `abi.h`, 11 for float32 |
| `STRING` | `string`, `n` | `string_view` | ends with a NUL |
| `TENSOR` | `tensor` | `Tensor` | with `CW_TAKES_NUMBERS` also a number: `Operand` |
| `GENERATOR` | `philox` | `Philox` | key and counter; always there, given or not |
| `INT_LIST` | `ints`, `n` | `List<int64_t>` | |
| `DOUBLE_LIST` | `doubles`, `n` | `List<double>` | |
| `BOOLEAN_LIST` | `ints`, `n` | `List<bool>` | 0 or 1 each |
| `TENSOR_LIST` | `tensors`, `n` | `List<Tensor>`, `List<optional<Tensor>>` | NULL where one is undefined |
| `SCALAR_LIST` | `args`, `n` | `List<Scalar>` | |

A schema's `dim` may be negative, and `dtype` absent, as the caller wrote it: only outputs have the
final shapes and dtypes.

## What a kernel needs

| `cw_op.needs` | `op.hpp` | what the core does before the call |
| --- | --- | --- |
| `CW_NEEDS_CONTIGUOUS` | both, less `.takes(cw::strides)` | makes tensors dense and row-major, outputs too |
| `CW_NEEDS_BROADCAST` | `pointwise`, less `.takes(cw::broadcasting)` | expands inputs to the first output's shape; only for pointwise operators |
| `CW_NEEDS_PROMOTION` | `pointwise`, less `.takes(cw::mixed_dtypes)` | casts inputs to their common dtype; not for `where.self_out`, whose condition would be bool no longer |
| `CW_NEEDS_ELEMENTS` | both, less `.takes(cw::zero_size)` | does not call where the first output is empty |
| `CW_TAKES_NUMBERS` | inputs of type `Operand` | hands a zero-dim tensor of the host on as a number |

`cw::pointwise(dtypes)` and `cw::dense(dtypes)` are the two to start from; a constant of either serves
a whole class of operators. `dtypes` are those of all tensors that the call has, given outputs too:
`eq.Tensor_out` writes bool. `copy_` takes strides: with it the core makes tensors dense.

As far as torch can tell from strides, what a kernel writes is read nowhere else in its call, but by
a pointwise one in the same place, and no two elements of it are the same memory. A call that is
otherwise goes to the host, which refuses or defines it as torch does; an output that is an input too
gets memory of its own.

## The table

{count} forms to write; they serve {served} more. `?` may be `NONE`. Names are without `aten::`.
Operators of which a call never reaches a vendor are not here: composites, views, results that are
no tensors, and those whose shapes torch has no meta kernel for. `nonzero.out` is here but for now it
is not called: on the CPU its result is column-major, and a kernel has no way to ask for that.

| operator | outputs | arguments | serves |
| --- | --- | --- | --- |
"""  # noqa: E501 (a row of a table is one line)


def markdown() -> str:
    """The text of docs/operators.md."""
    rows = [o for o in operators() if not o.served_by]
    served = len(operators()) - len(rows)
    page = _PAGE.format(version=torch_version(), count=len(rows), served=served)
    for o in rows:
        serves = ", ".join(f"`{_short(name)}`" for name in o.serves)
        cells = (f"`{_short(o.name)}`", _listed(o.outputs), _listed(o.inputs), serves)
        page += f"| {' | '.join(cells)} |\n"
    return page


def _short(name: str) -> str:
    return name.removeprefix("aten::")


def _listed(arguments: Sequence[Argument]) -> str:
    return ", ".join(f"{a.name} `{a.tag}`" for a in arguments)
