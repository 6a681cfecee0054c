"""One operator: its rung on a chip, dtype by dtype, and why; what a vendor would have to offer; and
what torch makes of it where nobody does.

`look` runs on the chip on paper, in a process of its own, on a call out of torch's own samples.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from causeway.coverage import forms
from causeway.coverage.record import name_of
from causeway.errors import CausewayError

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "bool", "complex64")
DEEPEST = 6


@dataclass
class Node:
    """An operator of a decomposition: served by a form, free (no arithmetic), or taken apart."""

    operator: str
    served_by: str = ""
    free: bool = False
    count: int = 1
    parts: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Rung:
    """What came of a call with a dtype: the rung, why, and what the ladder called on the way."""

    dtype: str
    rung: str
    reason: str
    call: str = ""
    inner: tuple[tuple[str, str, int], ...] = ()  # operator, rung, calls


def look(operator: str, dtypes: tuple[str, ...]) -> dict[str, Any]:
    """In the child: everything about `operator`, as JSON takes it."""
    from causeway import _C

    name, others = resolve(operator)
    offered, portable = (
        {n: [name_of(d) for d in o["dtypes"]] for n, o in some.items()}
        for some in (_C.offered(), _C.offered_portable())
    )
    has = {name_of(d) for d in _C.device_info(0)["dtypes"]}
    rungs = [_rung(name, dtype, offered, has) for dtype in dtypes or DTYPES]
    known = [rung for rung in rungs if rung is not None]
    return {
        "operator": name,
        "others": others,
        "schema": str(_overload(name)._schema),
        "forms": [[form, sorted(offered.get(form, []))] for form in forms.forms(name)],
        "rungs": [asdict(rung) for rung in known],
        "tree": _tree(name, known[0].dtype if known else "float32", offered | portable),
    }


def resolve(operator: str) -> tuple[str, list[str]]:
    """The full name of an overload, and the others of its name. Raises CausewayError for none."""
    name = operator if "::" in operator else f"aten::{operator}"
    every = {
        f"{s.name}.{s.overload_name}".removesuffix("."): s for s in torch._C._jit_get_all_schemas()
    }
    base = name.partition(".")[0]
    others = [n for n in every if n.partition(".")[0] == base]
    if not others:
        near = difflib.get_close_matches(base, {n.partition(".")[0] for n in every}, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CausewayError(f"torch has no operator {name}{hint}")
    if name not in every:
        if "." in name:
            raise CausewayError(f"{base} has no overload {name.partition('.')[2]!r}; it has "
                                f"{', '.join(others)}")  # fmt: skip
        order = [f"{base}.{o}" for o in ("Tensor", "self", "dim", "default", "int", "input")]
        functional = [n for n in others if not any(a.is_out for a in every[n].arguments)]
        name = next((n for n in order if n in every), (functional or others)[0])
    return name, [n for n in others if n != name]


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


# --- a call ---------------------------------------------------------------------------------------


def _call(name: str, dtype: torch.dtype) -> tuple[str, list[Any], dict[str, Any]] | None:
    """The form to call and its arguments, on the CPU."""
    from causeway.conformance import families, harvest

    try:
        family = families.family(name, frozenset())
        calls = harvest.harvest(family, dtype)
    except (CausewayError, AttributeError, KeyError):  # no samples here, or none of this name
        return _guess(name, dtype)
    # One with as many dimensions as are usual, not the first: samples begin with edge cases.
    calls = [c for c in calls if any(t.numel() > 1 for t in harvest.tensors_in(c.inputs))] or calls
    if not calls:
        return _guess(name, dtype)
    args, kwargs = harvest.arguments_for(family.reference, calls[0].inputs)
    return family.reference, args, kwargs


def _guess(name: str, dtype: torch.dtype) -> tuple[str, list[Any], dict[str, Any]] | None:
    """Square tensors for all tensors: right for many operators, and tried before it is used."""
    op = _overload(name)
    if any(a.is_out for a in op._schema.arguments):
        return None
    for shape in ((4, 4), (2, 4, 4), (2, 4, 4, 4), (4,)):
        args: list[Any] = []
        for argument in op._schema.arguments:
            kind = str(argument.type)
            if argument.has_default_value():
                break
            value = {
                "Tensor": torch.ones(shape, dtype=dtype), "number": 2, "int": 0, "float": 0.5,
                "bool": False, "List[int]": [0], "List[Tensor]": [torch.ones(shape, dtype=dtype)],
            }.get(kind)  # fmt: skip
            args.append(value)
        try:
            op(*args)
        except Exception:  # noqa: S112 - a guess that torch refuses is none
            continue
        return name, args, {}
    return None


def _rung(name: str, dtype: str, offered: forms.Offered, has: set[str]) -> Rung | None:
    import causeway
    from causeway.conformance.harvest import describe, map_tensors

    if dtype not in has:
        return Rung(dtype, "refused", f"the chip has no {dtype}")
    found = _call(name, getattr(torch, dtype))
    if found is None:
        return None
    form, args, kwargs = found
    device = torch.device(str(torch._C._get_privateuse1_backend_name()), 0)
    words = describe([*args, *kwargs.values()])
    args = map_tensors(args, lambda t: t.detach().to(device))
    kwargs = {
        key: map_tensors(value, lambda t: t.detach().to(device)) for key, value in kwargs.items()
    }
    if "device" in kwargs:
        kwargs["device"] = device
    with causeway.ledger() as ledger:
        try:
            with torch.no_grad():
                _overload(form)(*args, **kwargs)
        except Exception as error:
            return Rung(dtype, "error", str(error).split("\n")[0][:300], words)
    rows = [row for row in ledger.rows if row.rung != "narrowed"]
    own = [row for row in rows if row.operator in (form, name)]
    inner = tuple((row.operator, row.rung, row.calls) for row in rows if row not in own[:1])
    if not own:
        if not rows:
            return Rung(dtype, "free", "a view, or memory alone: no kernel is called", words)
        return Rung(
            dtype, "composite", "torch takes it apart before it reaches a chip", words, inner
        )
    rung = own[0].rung
    return Rung(dtype, rung, forms.reason(form, rung, [dtype], offered), words, inner)


# --- the tree -------------------------------------------------------------------------------------


class _Tree(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes operators apart that nobody serves, and writes down the tree."""

    def __init__(self, offered: forms.Offered) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.offered = offered
        self.at: list[Node] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        from causeway.ops import decompose, facts

        name = decompose._qualified(func)
        parent, node = self.at[-1], Node(name)
        same = [n for n in parent.parts if n.operator == name]
        if same:
            same[0].count += 1
            node = Node(name)  # its like is there already
        else:
            parent.parts.append(node)
        node.free = decompose._is_free(func)
        served = [form for form in forms.forms(name) if form in self.offered]
        made = facts.of(name).computed_by or ""
        node.served_by = served[0] if served else made if made in self.offered else ""
        apart = None if func.namespace != "prims" else getattr(func, "impl_aten", None)
        if apart is None and not node.free and not node.served_by and len(self.at) < DEEPEST:
            apart = decompose._decomposition(func)
        if apart is None or any(n.operator == name for n in self.at):
            return func(*args, **(kwargs or {}))
        self.at.append(node)
        try:
            with self:
                return apart(*args, **(kwargs or {}))
        finally:
            self.at.pop()


def _tree(name: str, dtype: str, offered: forms.Offered) -> dict[str, Any] | None:
    """torch's decomposition of the operator, traced on meta tensors; None where it has none."""
    from causeway.conformance.harvest import map_tensors
    from causeway.ops import decompose

    found = _call(name, getattr(torch, dtype))
    if found is None:
        return None
    form, args, kwargs = found
    op = _overload(form)
    compute = decompose._function(op)
    if compute is None:
        return None
    root, tree = Node(form), _Tree(offered)
    tree.at = [root]
    args = map_tensors(args, lambda t: t.detach().to("meta"))
    kwargs = {
        key: map_tensors(value, lambda t: t.detach().to("meta")) for key, value in kwargs.items()
    }
    if "device" in kwargs:
        kwargs["device"] = torch.device("meta")
    try:
        with torch._C._AutoDispatchBelowAutograd(), tree:
            compute(*args, **kwargs)
    except Exception:  # decompositions that need data, or a form that they do not take
        return asdict(root) if root.parts else None
    return asdict(root)


# --- for people -----------------------------------------------------------------------------------


def text(found: dict[str, Any], chip: str) -> str:
    """What `look` found, in lines."""
    lines = [found["schema"], "", f"On {chip}:"]
    width = max([len(r["dtype"]) for r in found["rungs"]], default=0)
    for rung in found["rungs"]:
        lines.append(f"  {rung['dtype']:<{width}}  {rung['rung']:<10}  {rung['reason']}")
        calls = [f"{n} x {o} ({r})" if n > 1 else f"{o} ({r})" for o, r, n in rung["inner"]]
        if calls and rung["rung"] in ("decomposed", "composite"):
            lines.append(f"  {'':<{width}}  {'':<10}  calls {', '.join(calls[:8])}")
    if not found["rungs"]:
        lines.append("  torch has no sample of it, so it could not be called")
    rungs = {r["rung"] for r in found["rungs"]}
    served = rungs and rungs <= {"native", "derived", "portable"}
    asked = "A vendor offers it as one of:" if served else "A vendor would have to offer one of:"
    apart = "No vendor is asked for it: torch takes it apart, or no kernel is called for it."
    lines += ["", asked if found["forms"] else apart]
    for form, dtypes in found["forms"]:
        state = f"offered for {', '.join(dtypes)}" if dtypes else "not offered"
        if forms.has_page(form):  # of another library's the schema is above
            state += f"; `causeway operators {form}` has its arguments"
        lines.append(f"  {form}  ({state})")
    lines.append("")
    if found["tree"]:
        lines.append("torch's decomposition:")
        lines += _branches(found["tree"], "")
    else:
        lines.append("torch has no decomposition of it.")
    if found["others"]:
        lines += ["", f"Other overloads: {', '.join(found['others'])}"]
    return "\n".join(lines)


def _branches(node: dict[str, Any], indent: str) -> list[str]:
    state = (
        "free" if node["free"] else f"served by {node['served_by']}" if node["served_by"]
        else "" if node["parts"] else "not served"
    )  # fmt: skip
    times = f" x {node['count']}" if node["count"] > 1 else ""
    lines = [f"  {indent}{node['operator']}{times}{'  ' if state else ''}{state}"]
    for part in node["parts"]:
        lines += _branches(part, indent + "  ")
    return lines
