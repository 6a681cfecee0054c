"""One Python module under conversion: what rules ask and what they answer.

A rule looks at nodes, then calls `change` with exact edits or `report` without any. Everything that
a rule writes is spelled here, so that `--target` and the name of the helper variable live in one
place. Edits that would overlap are refused and become a finding for a hand.
"""

from __future__ import annotations

import ast
import functools
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from causeway.migrate import float64, knowledge, vendors, visible
from causeway.migrate.about import About
from causeway.migrate.chains import compared_beside
from causeway.migrate.finding import Category, Finding, Kind, Severity
from causeway.migrate.kernels import Kernels
from causeway.migrate.names import (
    FUNCTIONS,
    Names,
    Scope,
    ancestors,
    before,
    block,
    brought,
    import_before,
    only_for_types,
    statement,
)
from causeway.migrate.own import NOTHING, Own
from causeway.migrate.rule import Rule
from causeway.migrate.settings import Settings
from causeway.migrate.source import Edit, Source
from causeway.migrate.standing import Variables

# The one line that converted modules may get. With check_available, a build of torch for CUDA on a
# machine without a GPU gives the CPU too.
HELPER = '{torch}.accelerator.current_accelerator(check_available=True) or {torch}.device("cpu")'
# The same by what torch was built for: it starts no driver, which would read CUDA_VISIBLE_DEVICES.
BUILT = HELPER.replace("check_available=True", "")
_HELPER = re.compile(
    r"\w+\.accelerator\.current_accelerator\(\s*(?:(?P<asks>check_available\s*=\s*True)\s*)?\)\s*"
    r"""or\s+\w+\.device\(\s*["']cpu["']\s*\)"""
)
_HELPER_NAMES = ("accelerator", "accelerator_device", "current_accelerator")
# A spelling that is only known at the end: the device where it is surely there, the device, its
# name. What is written for each where the module has no variable for it:
_PLACEHOLDER = re.compile(r"([\0\1\2])(\w+)\1")
_SPELLINGS = {
    "\0": "{torch}.accelerator.current_accelerator()",
    "\1": HELPER,
    "\2": "{torch}.accelerator.current_accelerator().type "
    'if {torch}.accelerator.is_available() else "cpu"',
}
_ARRAYS = re.compile(rf"\b(?:array_api\w*|{'|'.join(sorted(vendors.packages('arrays')))})\b")
_ASKED = "|".join(vendors.ASKED)
_VENDOR_ASKED = re.compile(
    rf"\bis_(?:torch_)?({_ASKED}|ipu|xpu)_available\b|\bis_torch_(cuda)_available\b"
    rf"|\bIS_(CUDA|XPU|{_ASKED.upper()})_AVAILABLE\b|\bIS_({'|'.join(vendors.MAKERS)}|NPU)\b"
)
_FIRST = (2, 6)  # the version of torch that brought torch.accelerator
_ASKED_AGAIN = 2  # times that a module asks torch for the device before a variable is shorter
_KEEP = re.compile(rb"#\s*causeway:\s*keep\b")


@dataclass
class Draft:
    """A finding whose texts are filled in at the end, when all edits are known."""

    rule: Rule
    start: int
    end: int
    kind: Kind
    message: str
    tip: str
    api: str
    category: Category
    severity: Severity
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Fold:
    """A choice of the device's name or "cpu" by the question whether there is a device. `whole` is
    the `torch.device(…)` around it where it is `wrapped`, else the choice.
    """

    name: ast.expr
    test: ast.expr
    choice: ast.IfExp
    whole: ast.expr

    @property
    def wrapped(self) -> bool:
        """Whether it is all of a `torch.device(…)`."""
        return self.whole is not self.choice


@dataclass(frozen=True)
class Use:
    """A dotted name that is used, as long as the module writes it, and what it means."""

    node: ast.Name | ast.Attribute
    api: str

    @property
    def call(self) -> ast.Call | None:
        """The call of this name, or None where it is only named."""
        up = self.node.up  # type: ignore[union-attr]
        return up if isinstance(up, ast.Call) and up.func is self.node else None


# Of a device; not torch.distributed.is_available(), and not an Accelerator by that name.
_ASKS = re.compile(
    r"cuda|gpu|(?<!\bdistributed\.)(?<!\bdist\.)is_available|torch\.accelerator"
    r"|accelerator(?!\w|\.(?!type))|device",
    re.I,
)


def _all_of(test: ast.expr | None) -> list[ast.expr]:
    """What must all be true for a condition to be: `a` and `b` of `a and b`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return test.values
    return [] if test is None else [test]


def _one_of(test: ast.expr) -> list[ast.expr]:
    """What must all be false for a condition to be: `a` and `b` of `a or b`."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]


_MISSES = re.compile(r"Import|ModuleNotFound|\bException\b")


def _is_optional(node: ast.stmt) -> bool:
    """Whether a program may go on without an import: by a `try`, in a branch, for types."""
    for child, up in ancestors(node):
        if isinstance(up, ast.Try) and child in up.body and any(map(_goes_on, up.handlers)):
            return True
        if isinstance(up, ast.If):
            return True
        if isinstance(up, FUNCTIONS):
            return False
    return False


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes a failed import, and does not end the program."""
    takes = handler.type is None or _MISSES.search(ast.unparse(handler.type)) is not None
    return takes and not isinstance(handler.body[-1], ast.Raise)


def _leaves(node: ast.If) -> bool:
    """Whether a branch leaves its block, and there is no other one."""
    return not node.orelse and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue)


@dataclass
class Module:
    """See above. `settings.target` is "portable" or the name of a device."""

    path: str
    source: Source
    tree: ast.Module
    settings: Settings
    own: Own = NOTHING
    own_packages: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()  # options of the tree that are named after CUDA
    extensions: frozenset[str] = frozenset()  # modules that the tree builds for CUDA
    chosen_late: bool = False  # the tree chooses its devices when modules are imported already
    edits: list[Edit] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = Names(self.tree, knowledge.exported())
        self.done: set[int] = set()  # id of nodes that a rule has dealt with
        self.homes: dict[tuple[int, str], str] = {}  # (import, bound name): its new meaning
        self.kept_questions: set[int] = set()  # id of calls that ask whether there is CUDA
        self.gone: set[int] = set()  # id of Name nodes that an edit removes
        self.star_uses: set[str] = set()  # names of an import with * that changed their home
        self.torch_wanted = False
        self.backend_left = False  # a question for NCCL stays: the module knows no torch
        self.helper_wanted: list[ast.AST] = []
        self.sure: list[ast.AST] = []  # where torch is asked for the device, for it is there
        self.target_used = False
        # What the spelling of the next change asks for; granted when the change is made.
        self._asks_for: list[Callable[[], object]] = []
        self._unnamed = False  # it asks for torch where the module has no name for it
        self.names_left: list[ast.AST] = []  # "cuda" that may be no device: what is set or returned
        self.said_in_tests: list[ast.AST] = []  # "cuda" that stays among the arguments of a call
        self.types_left: list[ast.AST] = []  # names of CUDA's tensor types as strings
        self.breaking: list[ast.AST] = []  # stays, and fails without CUDA
        self.untold: list[ast.AST] = []  # stays, as there may be no torch to ask for the device
        self._around: str | None = None  # a package of the kind "around"
        self.fragile: list[tuple[ast.AST, str]] = []  # a name that some devices' modules lack
        self._helper = ""
        self.chosen_late = self.chosen_late or (
            "VISIBLE_DEVICES" in self.source.text and visible.late(self.tree)
        )
        self._variables: Variables | None = None
        self.guards: list[tuple[ast.stmt, Edit]] = []  # conditions that were put before statements
        self.folds: list[Fold] = []
        self.renamed: set[str] = set()  # attributes of options that got another name
        self.choosing: dict[int, bool] = {}  # by id of a function: whether it gives a device
        self._torch_names: dict[int, str] = {}
        self._script_names: set[str] | None = None
        self._uses: list[Use] | None = None
        self._brought: frozenset[str] | None = None
        self._vendors: set[str] | None = None
        self._runtimes: dict[int, str] | None = None
        self._kernels: Kernels | None = None
        self._about: About | None = None
        self._jit = "jit" in self.source.text
        self._occupied: list[tuple[int, int]] = []  # sorted
        self._inserted: list[int] = []  # sorted places of edits that only insert
        self._keep = self._kept_lines()
        quotes = self.source.text
        self.quote = "'" if quotes.count("'") > quotes.count('"') else '"'
        strings = {n.value for n in self.names.all(ast.Constant) if isinstance(n.value, str)}
        self.has_cpu_path = "is_available" in quotes or "no_cuda" in quotes or "cpu" in strings
        self.indent = _indent(self.source, self.tree)
        self.imports_torch = self._imports_torch()

    def _imports_torch(self) -> bool:
        if any("torch" in _heads(node) for node in self.imports()):
            return True
        top = self.names.module
        return any(b.value and brought(b.value) for found in top.bindings.values() for b in found)

    @functools.cached_property
    def torch_at_top(self) -> bool:
        """Whether the module has torch when it runs, and not for annotations alone."""
        top = self.names.module
        return any(
            self.names.lookup(name, top) == "torch"
            and any(not only_for_types(b.node) for b in bound)
            for name, bound in top.bindings.items()
        )

    @functools.cached_property
    def torch_optional(self) -> bool:
        """Whether torch is imported in functions alone, and may be missing: one goes on where that
        fails, or takes it in a branch; annotations alone name it; other modules of the tree do
        without.
        """
        if self.names.stars or self.torch_at_top:
            return False
        brings: list[ast.stmt] = [node for node in self.imports() if "torch" in _heads(node)]
        brings += [stmt for stmt in self.names.all(ast.Assign) if brought(stmt.value)]
        late = [node for node in brings if not only_for_types(node)]
        return bool(late) and (
            self.own.torch_optional or len(late) < len(brings) or any(map(_is_optional, late))
        )

    @property
    def other_framework(self) -> bool:
        """Whether it never imports torch, and speaks of an array library that has devices."""
        if self.imports_torch or self.names.stars:
            return False
        return bool(_ARRAYS.search(self.source.text))

    # -- what rules ask

    @property
    def vendor(self) -> str:
        """The device name that is written out, or "" for portable code."""
        return "" if self.settings.target == "portable" else self.settings.target

    def uses(self, *roots: str) -> Iterator[Use]:
        """Names that are used, not dealt with yet, and mean `roots` or something below."""
        if self._uses is None:
            self._uses = self._all_uses()
            self._below: dict[str, list[int]] = {}  # by each beginning of a name: which uses
            for i, use in enumerate(self._uses):
                end = 0
                while end != len(use.api):
                    end = use.api.find(".", end + 1)
                    end = len(use.api) if end < 0 else end
                    self._below.setdefault(use.api[:end], []).append(i)
        found = [self._below[root] for root in roots if root in self._below]
        for i in found[0] if len(found) == 1 else sorted({i for places in found for i in places}):
            use = self._uses[i]
            if id(use.node) not in self.done:
                yield use

    def _all_uses(self) -> list[Use]:
        found: list[Use] = []
        for kind in (ast.Attribute, ast.Name):
            for node in self.names.all(kind):
                up = node.up  # type: ignore[attr-defined]
                if isinstance(up, ast.Attribute) and up.value is node:
                    continue
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    continue
                api = self.names.resolve(node)
                if api and api.startswith("torch.cuda.") and not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                    continue  # a program that gives torch.cuda other functions means CUDA's names
                if api:
                    found.append(self._known_part(node, knowledge.canonical(api)))  # type: ignore[arg-type]
        found.sort(key=lambda use: self.source.start(use.node))
        return found

    def _known_part(self, node: ast.Name | ast.Attribute, api: str) -> Use:
        """Cut attributes off a name of torch.cuda until it is one that is known."""
        if not api.startswith("torch.cuda."):
            return Use(node, api)
        whole = Use(node, api)
        while not knowledge.find(api) and isinstance(node, ast.Attribute):
            inner = node.value
            if not isinstance(inner, ast.Name | ast.Attribute) or api.count(".") <= 2:
                break
            node, api = inner, api.rpartition(".")[0]
        return Use(node, api) if knowledge.find(api) else whole

    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """All statements that import."""
        return [*self.names.all(ast.Import), *self.names.all(ast.ImportFrom)]

    @functools.cached_property
    def compared_words(self) -> frozenset[str]:
        """The strings that something in the module is compared with."""
        return frozenset(
            side.value
            for compare in self.names.all(ast.Compare)
            for side in compare.comparators
            if isinstance(side, ast.Constant) and isinstance(side.value, str)
        )

    @functools.cached_property
    def in_float64(self) -> bool:
        """Whether it computes in float64 on its device, which Apple's has not: such a program goes
        on with the CPU there.
        """
        return "torch" in self.source.text and float64.computes(self.names, self.resolve)

    @property
    def brought(self) -> frozenset[str]:
        """The qualified names of what the module imports, anywhere."""
        if self._brought is None:
            self._brought = frozenset(
                alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
                for node in self.imports()
                for alias in node.names
            )
        return self._brought

    def assignments(self) -> list[ast.Assign | ast.AnnAssign]:
        """All plain assignments."""
        return [*self.names.all(ast.Assign), *self.names.all(ast.AnnAssign)]

    def resolve(self, node: ast.AST) -> str:
        """The qualified name of an expression, or ""."""
        return knowledge.canonical(self.names.resolve(node) or "")

    def root(self, node: ast.AST) -> ast.Name | None:
        """The name that a dotted name starts with."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return node if isinstance(node, ast.Name) else None

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        return self.source.segment(node)

    def kept(self, node: ast.AST) -> bool:
        """Whether a comment `# causeway: keep` covers a node."""
        if not self._keep:
            return False
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        return any(low <= last and first <= high for low, high in self._keep)

    def guarded(self, node: ast.AST) -> bool:
        """Whether a condition around a node asks for a GPU already."""
        child = node
        while (up := getattr(child, "up", None)) is not None:
            test: ast.AST | None = None
            if (isinstance(up, ast.If) and child in up.body) or (
                isinstance(up, ast.IfExp) and child is up.body
            ):
                test = up.test
            elif isinstance(up, ast.BoolOp) and isinstance(up.op, ast.And):
                test = None if child is up.values[0] else up.values[0]
            if isinstance(child, ast.stmt) and self._left_before(child):
                return True
            if isinstance(up, ast.If) and child in up.orelse and self._denied(up.test):
                return True
            if isinstance(up, ast.For) and child in up.body and self._counts(up.iter):
                return True
            made = isinstance(up, ast.ListComp | ast.GeneratorExp) and child is up.elt
            if made and self._counts(up.generators[0].iter):
                return True
            if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return False
            asked = "" if test is None or self._usually(test) else self.text(test)
            if _ASKS.search(asked) and not asked.startswith("set_"):  # which says what is to be
                return True
            child = up
        return False

    def _usually(self, test: ast.AST) -> bool:
        """Whether it is a parameter that is true where nothing is given: `sync_gpu=True` shows no
        device.
        """
        if isinstance(test, ast.Attribute):  # self.sync_cuda, which is set to such a parameter
            set_to = {
                id(stmt): stmt.value for stmt in self.names.all(ast.Assign)
                if any(getattr(t, "attr", "") == test.attr for t in stmt.targets)
            }  # fmt: skip
            return len(set_to) == 1 and all(
                isinstance(v, ast.Name) and self._usually(v) for v in set_to.values()
            )
        bound = self.names.bindings(test) if isinstance(test, ast.Name) else []
        arg = bound[0].node if len(bound) == 1 else None
        args = arg.up if isinstance(arg, ast.arg) else None  # type: ignore[attr-defined]
        if not isinstance(args, ast.arguments):
            return False
        positional = [*args.posonlyargs, *args.args]
        given = [*zip(reversed(positional), reversed(args.defaults), strict=False),
                 *zip(args.kwonlyargs, args.kw_defaults, strict=True)]  # fmt: skip
        return any(a is arg and getattr(value, "value", None) is True for a, value in given)

    def _counts(self, node: ast.expr) -> bool:
        """Whether it is a range over the devices that are there: nothing runs for none."""
        inner = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None
        return isinstance(inner, ast.Call) and self.resolve(inner.func) in (
            "torch.cuda.device_count",
            "torch.accelerator.device_count",
        )

    def _left_before(self, stmt: ast.stmt) -> bool:
        """Whether the block of a statement was left before it where there is no device:
        `if not torch.cuda.is_available(): return`, or where the device is another one.
        """
        for other in before(stmt):
            if self._ends_without(other):
                return True
            test = other.test if isinstance(other, ast.If) and _leaves(other) else None
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq):
                compared = (getattr(n, "value", "") for n in test.comparators)
                if "cuda" in compared:
                    return True
        return False

    def _ends_without(self, stmt: ast.stmt) -> bool:
        """Whether nothing behind a statement runs where there is no device: it asserts one, or
        leaves.
        """
        if isinstance(stmt, ast.Assert):
            return any(map(self.asks, _all_of(stmt.test)))
        return isinstance(stmt, ast.If) and _leaves(stmt) and self._denied(stmt.test) is not None

    # -- what rules answer

    def change(
        self,
        rule: Rule,
        node: ast.AST,
        edits: Iterable[Edit],
        message: str,
        *,
        tip: str = "",
        api: str = "",
        category: Category = "api",
        severity: Severity = "info",
        safe: bool | None = None,
        follows: bool = False,
    ) -> bool:
        """Make edits; whether they were made. Unsafe ones wait for `--unsafe`, and one that meets
        another's range, or that a comment keeps, is not made. `follows`: what was changed elsewhere
        needs it, so that its own place does not count.
        """
        placed = not self.vendor and not follows
        self.done.add(id(node))
        asked, self._asks_for = self._asks_for, []
        unnamed, self._unnamed = self._unnamed, False
        if self.kept(node) or not self.settings.wants(rule.code):
            return False
        edits = list(edits)
        if unnamed and self.torch_optional:
            self.breaking.append(node)
            self.untold.append(node)
            self._draft(
                rule, node, "manual", "the module does without torch where it is not installed",
                "Import torch here, and ask it for the device.", api, category, "warning",
            )  # fmt: skip
            return False
        if placed and self._scripted(node):
            self._draft(
                rule, node, "manual", "TorchScript sees no variable of the module here",
                "Hand the device to the function as an argument, or take it from a tensor: "
                "`x.to(y.device)`.", api, category, "warning",
            )  # fmt: skip
            return False
        if placed and self._only_for_cuda(node):
            self._draft(
                rule, node, "portable", "it is behind a condition that is only true with CUDA",
                "Leave it, or widen the condition first.", api, category, "info",
            )  # fmt: skip
            return False
        if placed and self._by_vendor():
            self._draft(
                rule, node, "portable", "the module has a part for each vendor; this is CUDA's",
                "Leave it, and add one that asks torch.accelerator for any other.", api, category,
                "info",
            )  # fmt: skip
            return False
        if placed and (runtime := self._other_runtime(node)):
            self._draft(
                rule, node, "portable", f"it is for {runtime}, which runs on CUDA by itself",
                "Leave it, or run the model by torch on other devices.", api, category, "info",
            )  # fmt: skip
            return False
        if placed and (what := self._about_cuda(node)):
            self._draft(
                rule, node, "manual", f"it is in a part that is about CUDA itself: {what}",
                "Leave it, or convert such parts too by `--about-cuda`.", api, category, "info",
            )  # fmt: skip
            return False
        if placed and self._for_older_torch(node):
            self._draft(
                rule, node, "portable", "it is for a torch that has no torch.accelerator",
                "Leave it: the other branch serves every device.", api, category, "info",
            )  # fmt: skip
            return False
        if not (rule.safe if safe is None else safe) and not self.settings.unsafe:
            self._draft(
                rule, node, "manual", message + ": not done, for it may change what a program does",
                f"{tip or rule.by_hand} `--unsafe` does it.", api, category, "warning",
            )  # fmt: skip
            return False
        if any(self._removed(e) for e in edits):
            return False  # another change takes the place away
        if any(self._taken(e) for e in edits):
            self._draft(
                rule, node, "manual", "another change of this place came first", rule.by_hand,
                api, category, "warning",
            )  # fmt: skip
            return False
        for grant in asked:
            grant()
        for edit in edits:
            self.edits.append(edit)
            if edit.end > edit.start:
                insort(self._occupied, (edit.start, edit.end))
            else:
                insort(self._inserted, edit.start)
        self._draft(rule, node, "changed", message, tip or rule.by_hand, api, category, severity)
        self.drafts[-1].edits = tuple(edits)
        return True

    def report(
        self,
        rule: Rule,
        node: ast.AST,
        kind: Kind,
        message: str,
        *,
        tip: str = "",
        api: str = "",
        category: Category = "api",
        severity: Severity | None = None,
        breaking: bool = False,
    ) -> None:
        """Say that a place stays as it is. `breaking`: it fails where there is no CUDA."""
        self.done.add(id(node))
        self._asks_for, self._unnamed = [], False
        if self.kept(node) or not self.settings.wants(rule.code):
            return
        if breaking:
            self.breaking.append(node)
        usual: Severity = "info" if kind == "portable" else rule.severity
        self._draft(rule, node, kind, message, tip or rule.by_hand, api, category,
                    severity or usual)  # fmt: skip

    def leave_arguments(self) -> None:
        """Take back the devices that were written into calls which stay CUDA's."""
        for node in self.breaking:
            call = node.up  # type: ignore[attr-defined]
            if not (isinstance(call, ast.Call) and call.func is node):
                continue
            low, high = self.source.end(node), self.source.end(call)
            says = "the call that it is an argument of stays CUDA's"
            for i, d in enumerate(self.drafts):
                moved = d.rule.code in ("CW101", "CW105", "CW107")
                if d.kind == "changed" and moved and low <= d.start < high:
                    self.take_back(i, says)

    def leave_counts(self) -> None:
        """Take back a number of devices for each of which a call stays CUDA's:
        `for i in range(torch.cuda.device_count()):`.
        """
        for i, d in enumerate(self.drafts):
            if d.kind != "changed" or d.api != "torch.cuda.device_count":
                continue
            node = next(
                (n for n in self.names.all(ast.Call) if self.source.start(n) == d.start
                and self.source.end(n) == d.end), None,
            )  # fmt: skip
            if node is None:  # it is only named
                continue
            each = [*_for_each(node), *self._for_each_by_name(node)]
            parts = [part for one in each for part in self._with_called(one)]
            if any(self.within(n, part) for n in self.breaking for part in parts):
                self.take_back(i, "for each of these a call stays CUDA's")
                continue
            lacking = {
                name for n, name in self.fragile for part in parts if self.within(n, part)
            }  # fmt: skip
            if lacking and not self.available(node):
                self._none_without(d, node, sorted(lacking))

    def _none_without(self, draft: Draft, node: ast.expr, names: list[str]) -> None:
        """No devices are counted where their module lacks what is asked for each of them."""
        quote, torch = self.quote_for(node), self.torch(node)
        asks = " and ".join(
            f"hasattr({torch}.get_device_module(), {quote}{n}{quote})" for n in names
        )
        up = node.up  # type: ignore[attr-defined]
        alone_there = isinstance(up, ast.Assign | ast.Call)
        a, b = ("", "") if alone_there else ("(", ")")
        start, end = self.source.start(node), self.source.end(node)
        more = [Edit(start, start, a)] if a else []
        more.append(Edit(end, end, f" if {asks} else 0{b}"))
        self.edits += more
        draft.edits += tuple(more)

    def _for_each_by_name(self, node: ast.AST) -> Iterator[ast.AST]:
        """What runs for each of a number that has a name in its function."""
        for _, up in ancestors(node):
            if isinstance(up, ast.stmt):
                target = up.targets[0] if isinstance(up, ast.Assign) else None
                if isinstance(target, ast.Name):
                    held = self.names.holder(target.id, target.scope)  # type: ignore[attr-defined]
                    for name in self.names.all(ast.Name):
                        if name.id == target.id and isinstance(name.ctx, ast.Load) and (
                            self.names.holder(name.id, name.scope) is held  # type: ignore[attr-defined]
                        ):  # fmt: skip
                            yield from _for_each(name)
                return

    def _with_called(self, part: ast.AST) -> list[ast.AST]:
        """Code, and the functions of the module that it calls."""
        return [part, *(
            b.node for call in ast.walk(part)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            for b in self.names.bindings(call.func) if isinstance(b.node, FUNCTIONS)
        )]  # fmt: skip

    def take_back(self, i: int, says: str) -> None:
        """Undo a change, which is then reported as portable with what `says`."""
        draft = self.drafts[i]
        self.edits = [e for e in self.edits if e not in draft.edits]
        self.guards = [g for g in self.guards if g[1] in self.edits]
        low, high = draft.start, max(draft.end, draft.start + 1)
        self.helper_wanted = [
            n for n in self.helper_wanted if not low <= self.source.start(n) < high
        ]
        self.sure = [n for n in self.sure if not low <= self.source.start(n) < high]
        if self.gone:  # a name that is there again keeps its import
            there = (n for n in self.names.all(ast.Name) if low <= self.source.start(n) < high)
            self.gone -= {id(n) for n in there}
        self.drafts[i] = replace(draft, kind="portable", message=says, edits=())

    def drop(self, start: int, end: int) -> None:
        """Take back all that was done or said between two offsets, which will not be there."""
        self.edits = [e for e in self.edits if not start <= e.start <= e.end <= end]
        self.drafts = [d for d in self.drafts if not start <= d.start < end]
        self.guards = [g for g in self.guards if g[1] in self.edits]
        place = self.source.start
        self.helper_wanted = [n for n in self.helper_wanted if not start <= place(n) < end]
        self.folds = [f for f in self.folds if not start <= place(f.name) < end]
        self._occupied = [o for o in self._occupied if not start <= o[0] < end]
        self._inserted = [i for i in self._inserted if not start <= i < end]

    def _draft(self, rule: Rule, node: ast.AST, kind: Kind, message: str, tip: str, api: str,
               category: Category, severity: Severity) -> None:  # fmt: skip
        start, end = self.source.start(node), self.source.end(node)
        draft = Draft(rule, start, end, kind, message, tip, api, category, severity)
        self.drafts.append(draft)

    def _removed(self, edit: Edit) -> bool:
        """Whether an edit is inside of what another one takes out."""
        i = bisect_left(self._occupied, (edit.start + 1, -1)) - 1
        low, high = self._occupied[i] if i >= 0 else (-1, -1)
        inside = low <= edit.start and edit.end <= high and (low, high) != (edit.start, edit.end)
        return inside and any((e.start, e.end, e.text) == (low, high, "") for e in self.edits)

    def _taken(self, edit: Edit) -> bool:
        # Ranges that are taken do not overlap, so two neighbours tell.
        i = bisect_left(self._occupied, (edit.end, -1))
        before = self._occupied[i - 1] if i else (-1, -1)
        if edit.end == edit.start:
            return before[0] < edit.start < before[1]
        if before[1] > edit.start:
            return True
        j = bisect_right(self._inserted, edit.start)
        return j < len(self._inserted) and self._inserted[j] < edit.end

    # -- spelling

    def torch(self, node: ast.AST) -> str:
        """How torch is called where `node` is; asks for `import torch` where it has no name."""
        name = self._torch_name(node.scope)  # type: ignore[attr-defined]
        if name:
            return name
        self._unnamed = True
        self._asks_for.append(lambda: setattr(self, "torch_wanted", True))
        return "torch"

    def _torch_name(self, scope: Scope | None) -> str:
        if scope is None:
            return ""
        known = self._torch_names.get(id(scope))
        if known is None:
            names = (n for n in scope.bindings if self.names.lookup(n, scope) == "torch")
            known = next(names, "")
            outer = "" if known else self._torch_name(scope.parent)
            # A name of an outer scope counts only where it is not bound to something else here.
            known = known or ("" if outer in scope.bindings else outer)
            self._torch_names[id(scope)] = known
        return known

    def spelled(self, node: ast.AST, api: str) -> str:
        """A qualified name of torch, written with the name that torch has here."""
        root = self.root(node)
        if root is not None and self.names.resolve(root) == "torch":
            return root.id + api.removeprefix("torch")
        return self.torch(node) + api.removeprefix("torch")

    def question(self, torch: str) -> str:
        """What the helper is set to, by the name that torch has."""
        return (BUILT if self.chosen_late else HELPER).format(torch=torch)

    def helper(self, node: ast.AST) -> str:
        """The name of the variable that holds the device; asks for it to be defined."""
        if not self._helper:
            self._helper = (
                self.helper_line.targets[0].id  # type: ignore[attr-defined]
                if self.helper_line is not None
                else next(
                    name
                    for name in (*_HELPER_NAMES, *(f"accelerator_{n}" for n in range(2, 1000)))
                    if name not in self.names.used
                )
            )
        name = self._torch_name(node.scope)  # type: ignore[attr-defined]
        self._unnamed |= not name or (
            self.torch_optional and import_before(self.names, name, node) is None
        )
        self._asks_for.append(lambda: self.helper_wanted.append(node))
        return self._helper

    def device(self, node: ast.AST) -> str:
        """An expression of the device, for an argument that takes a torch.device."""
        if self.vendor:
            self.use_target()
            return f"{self.quote_for(node)}{self.vendor}{self.quote_for(node)}"
        if variable := self.variables.at(node):
            return variable.text
        if self.available(node):
            return self.known_device(node)
        return self.helper(node)

    def known_device(self, node: ast.AST) -> str:
        """An expression of the device where it is surely there, by no variable of the program."""
        self._asks_for.append(lambda: self.sure.append(node))
        return f"\0{self.torch(node)}\0"

    def device_object(self, node: ast.AST) -> str:
        """An expression of the device that is a torch.device, and no name of one."""
        variable = None if self.vendor else self.variables.at(node)
        if variable is None or variable.meaning.is_device:
            return self.device(node)
        return f"{self.torch(node)}.device({variable.text})"

    @property
    def variables(self) -> Variables:
        """The variables that hold the device already."""
        if self._variables is None:
            self._variables = Variables(
                self.names, self.resolve, self.asks,
                lambda value: _HELPER.fullmatch(self.text(value)) is not None,
                self._converted, self.uncommented,
            )  # fmt: skip
        return self._variables

    def _converted(self, node: ast.AST) -> bool:
        """Whether nothing keeps the device that is named at `node` from being written."""
        wanted = all(self.settings.wants(code) for code in ("CW101", "CW114"))
        stays = (
            self.kept(node)
            or self._scripted(node)
            or self._only_for_cuda(node)
            or self._by_vendor()
            or self._other_runtime(node)
            or bool(self._about_cuda(node))
            or self._for_older_torch(node)
        )
        return wanted and not stays and not self.other_framework

    def uncommented(self, node: ast.AST) -> bool:
        """Whether no comment is inside of a node."""
        start, end = self.source.start(node), self.source.end(node)
        return "#" not in self.source.slice(start, end)

    def joined_parts(self, node: ast.Constant) -> tuple[str, str, str] | None:
        """Prefix, quote and content of a string in several pieces, as one: `"cu" "da"`."""
        value = node.value
        if not isinstance(value, str) or not re.fullmatch(r"[\w:%{}.,]+", value):
            return None
        return ("", self.quote_for(node), value) if self.uncommented(node) else None

    def later(self, node: ast.AST, *, is_device: bool) -> str:
        """The value of a variable that holds the device from here on: the helper, where the module
        has one anyway, else what that would be. `is_device`: a torch.device, no name.
        """
        mark = "\1" if is_device else "\2"
        return f"{mark}{self.torch(node)}{mark}"

    def use_target(self) -> None:
        """Ask for the import of the vendor's module."""
        self._asks_for.append(lambda: setattr(self, "target_used", True))

    def within(self, node: ast.AST, around: ast.AST) -> bool:
        """Whether a node is a part of another one."""
        return self.source.start(around) <= self.source.start(node) < self.source.end(around)

    def available(self, node: ast.AST) -> bool:
        """Whether `node` is only evaluated where torch.cuda.is_available() is true."""
        child = node
        while (up := getattr(child, "up", None)) is not None:
            if isinstance(up, ast.IfExp) and child is up.orelse:
                if any(map(self._denied, _one_of(up.test))):
                    return True
            elif isinstance(up, ast.If) and child in up.orelse and any(
                map(self._denied, _one_of(up.test))
            ):  # fmt: skip
                return True
            elif (isinstance(up, ast.If) and child in up.body) or (
                isinstance(up, ast.IfExp) and child is up.body
            ):
                for test in _all_of(up.test):
                    if self.asks(test) or self._asked_before(test):
                        return True
            if isinstance(child, ast.stmt) and any(map(self._ends_without, before(child))):
                return True
            if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                return False
            child = up
        return False

    def unavailable(self, node: ast.AST) -> ast.expr | None:
        """What asks torch.cuda.is_available(), where `node` only counts if the answer is no: there
        a device is compared with the accelerator in vain, for there is none. Else None.

        `x == "cuda" and not is_available()`, in either order, and where that decides on a branch.
        """
        for child, up in ancestors(node):
            yes: list[ast.expr] = []  # one of these is false
            no: list[ast.expr] = []  # all of these are true
            if isinstance(up, ast.BoolOp):
                beside = [value for value in up.values if value is not child]
                yes, no = ([], beside) if isinstance(up.op, ast.And) else (beside, [])
            elif isinstance(up, ast.If | ast.IfExp):
                first = up.body if isinstance(up, ast.If) else [up.body]
                other = up.orelse if isinstance(up, ast.If) else [up.orelse]
                joined = type(up.test.op) if isinstance(up.test, ast.BoolOp) else None
                tests = up.test.values if isinstance(up.test, ast.BoolOp) else [up.test]
                no = tests if child in first and joined is not ast.Or else []
                yes = tests if child in other and joined is not ast.And else []
            asked = [*filter(self.asks, yes), *filter(None, map(self._denied, no))]
            if asked:
                return asked[0]
            if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                return None
        return None

    def _denied(self, test: ast.expr) -> ast.expr | None:
        """The question whether there is a device, of an expression that says that there is none."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return test.operand if self.asks(test.operand) else None
        return None

    def _asked_before(self, test: ast.expr) -> bool:
        """Whether a name is only true where there is a device:
        `use_cuda = not args.no_cuda and torch.cuda.is_available()`.
        """
        bindings = self.names.bindings(test) if isinstance(test, ast.Name) else []
        value = bindings[0].value if len(bindings) == 1 else None
        return any(map(self.asks, _all_of(value)))

    def _scripted(self, node: ast.AST) -> bool:
        """Whether `node` is in a function that TorchScript compiles; in a module that is named
        after it, `transformer_jit.py`, another module may compile each.
        """
        if self.path.endswith("_jit.py"):
            return any(isinstance(up, ast.FunctionDef) for _, up in ancestors(node))
        if not self._jit:
            return False
        script = ("torch.jit.script", "torch.jit.script_method")
        if self._script_names is None:
            self._script_names = {
                getattr(call.args[0], "id", "")
                for call in self.names.all(ast.Call)
                if call.args and self.resolve(call.func) == script[0]
            }
        for _, up in ancestors(node):
            if isinstance(up, ast.FunctionDef) and (
                up.name in self._script_names
                or any(self.resolve(d) in script for d in up.decorator_list)
            ):
                return True
        return False

    def asks(self, test: ast.expr) -> bool:
        """Whether an expression is the question whether there is a device."""
        return isinstance(test, ast.Call) and self.resolve(test.func) in (
            "torch.cuda.is_available",
            "torch.accelerator.is_available",
        )

    def _only_for_cuda(self, node: ast.AST) -> bool:
        """Whether `node` is only evaluated where torch.version.cuda is set."""
        child = node
        while (up := getattr(child, "up", None)) is not None:
            tests: list[ast.expr] = []
            if isinstance(up, ast.BoolOp) and isinstance(up.op, ast.And):
                tests = up.values[: up.values.index(child)]  # type: ignore[arg-type]
            elif (isinstance(up, ast.If) and child in up.body) or (
                isinstance(up, ast.IfExp) and child is up.body
            ):
                tests = _all_of(up.test)
            for test in tests:
                if (
                    isinstance(test, ast.Compare)
                    and len(test.ops) == 1
                    and isinstance(test.ops[0], ast.IsNot)
                ):
                    asked: ast.expr = test.left
                else:
                    asked = test
                if self.resolve(asked) == "torch.version.cuda" or _of_cuda_alone(test):
                    return True
                if self._is_member(test) or self._of_version(test):
                    return True
                if self._asks_given(test):
                    return True
                if isinstance(test, ast.Call) and self.resolve(test.func).startswith("numba.cuda."):
                    return True
            if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                return False
            child = up
        return False

    def _of_version(self, test: ast.expr) -> bool:
        """Whether it hands CUDA's version to a function: `newer(torch.version.cuda, "11.0")`."""
        return any(
            isinstance(n, ast.Attribute) and self.resolve(n) == "torch.version.cuda"
            for call in ast.walk(test) if isinstance(call, ast.Call)
            for n in ast.walk(call)
        )  # fmt: skip

    def _asks_given(self, test: ast.expr) -> bool:
        """Whether it asks a torch that was given, which stays: `t.cuda.is_available()`."""
        func = test.func if isinstance(test, ast.Call) else None
        owner = func.value if isinstance(func, ast.Attribute) else None
        return (
            isinstance(owner, ast.Attribute)
            and func.attr == "is_available"  # type: ignore[union-attr]
            and owner.attr == "cuda"
            and not self.resolve(owner)
        )

    def own_member(self, node: ast.AST) -> bool:
        """Whether it is the program's own name for CUDA's device: `TorchDevice.CUDA`."""
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "CUDA"
            and isinstance(node.value, ast.Name | ast.Attribute)
            and not self.resolve(node).startswith("torch.")
        )

    def _is_member(self, test: ast.expr) -> bool:
        """Whether it asks for that: `device == TorchDevice.CUDA`."""
        return (
            isinstance(test, ast.Compare)
            and len(test.ops) == 1
            and isinstance(test.ops[0], ast.Eq | ast.Is)
            and any(map(self.own_member, (test.left, *test.comparators)))
        )

    def _by_vendor(self) -> bool:
        """Whether the module tells several vendors' devices apart by what is there of each:
        `is_npu_available()`, `torch.mlu`.
        """
        if self._vendors is None:
            asked = {
                next(filter(None, m.groups())).lower()
                for m in _VENDOR_ASKED.finditer(self.source.text)
            }
            named = {
                n.attr for n in self.names.all(ast.Attribute)
                if n.attr in vendors.DEVICES and self.resolve(n.value) == "torch"
            }  # fmt: skip
            self._vendors = asked | named
        in_folder = any(self.path.startswith(f"{f}/") for f in self.own.vendor_folders)
        in_folder = in_folder or self.path in self.own.of_vendors
        return in_folder or self.several_vendors or len(self._vendors) > 1

    def _other_runtime(self, node: ast.AST) -> str:
        """Whose device it is where `node` is, if not torch's: that of a kernel of CUDA's, or of
        what runs models in place of torch, which its class or function imports, or uses of what the
        module imported. "" where it is torch's.
        """
        if self._runtimes is None:
            words = (
                *vendors.packages("runtime"), *vendors.packages("loss"), *vendors.PROVIDERS,
                "importorskip",
            )  # fmt: skip
            concerned = any(word in self.source.text for word in words)
            self._runtimes = (
                {} if not concerned else {id(n): name for n, name in self._found_runtimes()}
            )
        if self._kernels is None:
            self._kernels = Kernels(
                self.names, self.resolve, self.source.text, self.extensions, self.own.kernels,
                self.path, self.own.wrappers, self.own.triton, self.own_packages,
            )  # fmt: skip
        if owner := self._kernels.at(node):
            return owner
        folder = self.path.rpartition("/")[0] or "."
        if folder in self.own.beside_k2 or any("k2" in _heads(n) for n in self.imports()):
            return "k2"
        if self._around is None:
            brought = {head for n in self.imports() for head in _heads(n)} - self.own_packages
            # Also by what another package has of it: `from lhotse import KaldifeatFbank`.
            brought |= {
                "kaldifeat" for n in self.imports() for alias in n.names
                if alias.name.startswith("Kaldifeat")
            }  # fmt: skip
            self._around = next(iter(sorted(vendors.packages("around") & brought)), "")
        if self._around:
            return self._around
        if not self._runtimes:
            return ""
        around = [up for _, up in ancestors(node) if isinstance(up, (*FUNCTIONS, ast.ClassDef))]
        return next((self._runtimes[id(up)] for up in around if id(up) in self._runtimes), "")

    def _about_cuda(self, node: ast.AST) -> str:
        """What makes the part around a node one that is about CUDA itself; "" where it is not, or
        where such parts are converted too.
        """
        if self.settings.about_cuda:
            return ""
        if self._about is None:
            self._about = About(self.names, self.resolve, self.source.text, self.path)
        return self._about.at(node)

    def _found_runtimes(self) -> Iterator[tuple[ast.AST, str]]:
        """The classes and functions that another runtime is for."""
        runtimes, losses = vendors.packages("runtime"), vendors.packages("loss")
        for node in self.imports():
            for head in _heads(node):
                if head in runtimes:
                    yield from ((up, head) for up in self._home(node))
        for name_node in self.names.all(ast.Name):
            head = self.resolve(name_node).partition(".")[0]
            if head in runtimes:
                yield from ((up, head) for up in self._home(name_node))
            elif head in losses:  # the module around the loss; a program has much else to do
                homes = self._home(name_node)
                yield from ((up, head) for up in homes if isinstance(up, ast.ClassDef))
        for constant in self.names.all(ast.Constant):
            if constant.value in vendors.PROVIDERS:
                yield from ((up, "onnxruntime") for up in self._home(constant)[:1])
            elif constant.value in vendors.packages("tested"):
                call = constant.up  # type: ignore[attr-defined]
                if isinstance(call, ast.Call) and self.resolve(call.func) == "pytest.importorskip":
                    yield from ((up, constant.value) for up in self._home(constant)[:1])

    @staticmethod
    def _home(node: ast.AST) -> list[ast.AST]:
        """The function around a node, and its class."""
        homes = (up for _, up in ancestors(node) if isinstance(up, (*FUNCTIONS, ast.ClassDef)))
        return list(islice(homes, 2))

    def _for_older_torch(self, node: ast.AST) -> bool:
        """Whether `node` is only evaluated where torch has no `accelerator`, or no `amp`: the other
        branch of `hasattr(torch, "accelerator")`.
        """
        if not re.search("accelerator|amp|__version__", self.source.text):
            return False
        for child, up in ancestors(node):
            if isinstance(up, ast.ExceptHandler):
                if any(map(self._is_newer, ast.walk(ast.Module(up.up.body, [])))):  # type: ignore[attr-defined]
                    return True
                continue
            if isinstance(up, ast.If):
                other = child in up.orelse
            elif isinstance(up, ast.IfExp):
                other = child is up.orelse
            else:
                continue
            tests = [up.test]
            if isinstance(up.test, ast.BoolOp) and isinstance(up.test.op, ast.And):
                tests = up.test.values
            if other and any(self._has_accelerator(test) for test in tests):
                return True
            if self._of_older(up.test, denied=other):
                return True
        return False

    def _of_older(self, test: ast.expr, *, denied: bool) -> bool:
        """Whether a branch is for a torch without torch.accelerator, by a comparison of versions:
        `torch.__version__ < "1.6"`, or the other branch of `torch.__version__.startswith("2")`.
        """
        parts = list(ast.walk(test))
        if not any(isinstance(n, ast.Attribute) and n.attr == "__version__"
                   and self.resolve(n) == "torch.__version__" for n in parts):  # fmt: skip
            return False
        said = [str(n.value) for n in parts if isinstance(n, ast.Constant)]
        number = re.match(r"\d+(?:\.\d+)?", said[0]) if len(said) == 1 else None
        if number is None or tuple(map(int, number[0].split("."))) > _FIRST:
            return False
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            older = isinstance(test.ops[0], ast.Lt | ast.LtE)
            return older is not denied and (older or isinstance(test.ops[0], ast.Gt | ast.GtE))
        func = test.func if isinstance(test, ast.Call) else None
        return denied and getattr(func, "attr", "") == "startswith"

    def _is_newer(self, node: ast.AST) -> bool:
        """Whether it is a call of what older versions of torch do not have."""
        api = self.resolve(node.func) if isinstance(node, ast.Call) else ""
        return api.startswith(("torch.amp.", "torch.accelerator."))

    def _has_accelerator(self, test: ast.expr) -> bool:
        return (
            isinstance(test, ast.Call)
            and getattr(test.func, "id", "") == "hasattr"
            and len(test.args) == 2
            and self.resolve(test.args[0]) == "torch"
            and isinstance(test.args[1], ast.Constant)
            and test.args[1].value in ("accelerator", "amp")
        )

    def spare(self) -> None:
        """Leave a module that never imports torch, where one string would be all that needs it, and
        a test whose strings are what it hands to a stand-in.
        """
        if self.vendor or self.imports_torch or self.names.stars:
            return
        made = [d for d in self.drafts if d.kind == "changed"]
        # A word among an option's choices adds nothing to its default.
        choices = [d for d in made if self._is_choice(d)]
        a_test = self.path.rpartition("/")[2].startswith("test_")
        if not made or (len(made) > max(1, len(choices) + 1) and not a_test):
            return
        if any(d.rule.code not in ("CW101", "CW115", "CW140") for d in made):
            return
        for d in made:
            i = self.drafts.index(d)
            self.edits = [e for e in self.edits if e not in d.edits]
            self.drafts[i] = replace(
                d, kind="manual",
                message="the module does not import torch, which knows the device",
                tip="Import torch here, or let what takes this ask torch.", edits=(),
            )  # fmt: skip
        self.torch_wanted, self.helper_wanted, self.sure = False, [], []

    def _is_choice(self, draft: Draft) -> bool:
        """Whether a change is that of a word among the choices of an option."""
        return any(
            keyword.arg == "choices"
            and self.source.start(keyword.value) <= draft.start < self.source.end(keyword.value)
            for keyword in self.names.all(ast.keyword)
        )

    def share(self) -> None:
        """Take the helper where the device would be asked for again and again."""
        at_top = any(b.kind == "import" for b in self.names.module.bindings.get("torch", []))
        written = sum(e.text.count("\0") // 2 for e in self.edits)
        if written > _ASKED_AGAIN and at_top and not self.vendor:
            for node in self.sure:
                self.helper(node)
            for grant in self._asks_for:
                grant()
            self._asks_for = []

    def settle(self) -> None:
        """Decide how the device is written where that was open: by the helper if the module has
        one anyway, else by asking torch. Where the helper does not ask whether there is a device,
        questions stay where they are.
        """
        name = self._helper if self.helper_wanted else ""
        if not self.by_build:
            self._fold(name)
        self._join_guards()

        def written(match: re.Match[str]) -> str:
            mark, torch = match.groups()
            if name and (mark == "\0" or not self.by_build):
                return f"{name}.type" if mark == "\2" else name
            return _SPELLINGS[mark].format(torch=torch).replace('"', self.quote)

        self.edits = [Edit(e.start, e.end, _PLACEHOLDER.sub(written, e.text)) for e in self.edits]

    def _fold(self, name: str) -> None:
        """Take the question away whose answer the variable has already: `accelerator.type if
        torch.accelerator.is_available() else "cpu"` is `accelerator.type`.
        """
        for fold in self.folds:
            start, end = self.source.start(fold.name), self.source.end(fold.name)
            low, high = self.source.start(fold.whole), self.source.end(fold.whole)
            inside = [e for e in self.edits if low <= e.start and e.end <= high]
            text = next((e.text for e in inside if (e.start, e.end) == (start, end)), "")
            test = self.source.start(fold.test), self.source.end(fold.test)
            asked = [
                d for d in self.drafts
                if d.rule.code == "CW114" and d.kind == "changed" and (d.start, d.end) == test
            ]  # fmt: skip
            moved = not any(test[0] <= e.start and e.end <= test[1] for e in inside)
            if not asked or moved or not text or (text.startswith("\0") and not name):
                continue
            self.edits = [e for e in self.edits if e not in inside]
            if fold.wrapped and text.endswith(".type"):
                text = text.removesuffix(".type")
                cuts = [(low, start), (end, high)]
            else:
                low, high = self.source.start(fold.choice), self.source.end(fold.choice)
                cuts = [(low, start), (end, high)]
                kept = [e for e in inside if e.end <= low or e.start >= high]
                self.edits += kept
            if isinstance(fold.choice.up, ast.Assign | ast.BoolOp) and not fold.wrapped:  # type: ignore[attr-defined]
                cuts = self._without_parentheses(cuts)
            self.edits.append(Edit(start, end, text))
            self.edits += [Edit(a, b, "") for a, b in cuts if a < b]
            for draft in asked:
                draft.start, draft.end = cuts[1] if start < test[0] else cuts[0]
                draft.message = "the variable is the CPU where there is no accelerator"

    def _without_parentheses(self, cuts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Two cuts, with the parentheses around what they are cut from where it has some."""
        data = self.source.data
        before, after = data[: cuts[0][0]].rstrip(), data[cuts[1][1] :]
        rest = after.lstrip()
        if not (before.endswith(b"(") and rest.startswith(b")")):
            return cuts
        closed = len(data) - len(rest) + 1
        return [(len(before) - 1, cuts[0][1]), (cuts[1][0], closed)]

    def _join_guards(self) -> None:
        """One condition for several statements in a row that got the same one."""
        by_stmt = {id(stmt): (stmt, edit) for stmt, edit in self.guards}
        for stmt, edit in self.guards:
            around = block(stmt)
            at = around.index(stmt)
            before = by_stmt.get(id(around[at - 1])) if at else None
            if before is None or before[1].text != edit.text:
                continue
            self.edits.remove(edit)
            self.edits += [Edit(p, p, self.indent) for p in self._lines_between(before[0], stmt)]

    def _lines_between(self, one: ast.stmt, other: ast.stmt) -> list[int]:
        """Where the comments between two statements start, and the second of them."""
        source = self.source
        at, end = source.line_end(source.end(one)), source.start(other)
        between = source.slice(at, source.line_start(end)).encode()
        found = [at + m.end() for m in re.finditer(rb"[\r\n][ \t]*(?=#)", between)]
        return [*found, end]

    def device_type(self, node: ast.AST) -> str:
        """An expression of the device's name, a str."""
        if self.vendor:
            return self.device(node)
        variable = self.variables.at(node)
        if variable is not None and not variable.meaning.is_device:
            return f"{self.helper(node)}.type" if variable.meaning.indexed else variable.text
        return f"{self.device(node)}.type"

    def there(self, node: ast.AST) -> str:
        """The question whether there is a device, for a condition that is added. It is what torch
        was built for where a module is imported before the tree chooses its devices.
        """
        late = self.by_build and not any(
            isinstance(up, (*FUNCTIONS, ast.Lambda)) for _, up in ancestors(node)
        )
        if late:
            quote = self.quote_for(node)
            return f"{self.helper(node)}.type != {quote}cpu{quote}"
        named = node.func if isinstance(node, ast.Call) else node  # by torch's name there
        return f"{self.spelled(named, 'torch.accelerator.is_available')}()"

    def quote_for(self, node: ast.AST) -> str:
        """A quote that can stand where `node` is, also inside of an f-string."""
        around: ast.AST | None = node
        while around is not None:
            if isinstance(around, ast.JoinedStr):
                return '"' if "'" in self.text(around)[:4] else "'"
            around = getattr(around, "up", None)
        return self.quote

    def in_fstring(self, node: ast.AST) -> bool:
        """Whether a node is inside of an f-string."""
        return any(isinstance(up, ast.FormattedValue) for _, up in ancestors(node))

    def rename(self, use: Use, api: str) -> list[Edit]:
        """Edits that make a used name mean `api`.

        `torch.cuda.x` is written anew; a name that an import brought keeps its name, and the
        import changes. Names that were assigned change where they are assigned.
        """
        node = use.node
        root = self.root(node)
        assert root is not None
        if isinstance(node, ast.Name):
            bindings = self.names.bindings(node)
            for binding in bindings:
                if binding.kind == "import":
                    self._move(binding.node, node.id, api)
            if not bindings:
                self._asks_for.append(lambda: self.star_uses.add(node.id))
            return []
        meaning = knowledge.canonical(self.names.lookup(root.id, root.scope) or "")  # type: ignore[attr-defined]
        for old, new in (("torch.cuda.amp", "torch.amp"),):
            kinds = {b.kind for b in self.names.bindings(root)}
            if meaning == old and api.startswith(new + ".") and kinds == {"import"}:
                for binding in self.names.bindings(root):
                    self._move(binding.node, root.id, new)
                tail = api.removeprefix(new)
                start = self.source.end(root)
                if self.source.slice(start, self.source.end(node)) == tail:
                    return []
                return [Edit(start, self.source.end(node), tail)]
        return [self.replace(node, self.spelled(node, api))]

    def _move(self, statement: ast.AST, name: str, home: str) -> None:
        def grant() -> None:
            self.homes[id(statement), name] = home

        self._asks_for.append(grant)

    def replace(self, node: ast.expr, text: str) -> Edit:
        """An edit that writes `text` in place of a node."""
        root = self.root(node)
        if root is not None:
            self._asks_for.append(lambda: self.gone.add(id(root)))
        return Edit(self.source.start(node), self.source.end(node), text)

    def insert_first(self, call: ast.Call, text: str) -> Edit:
        """An edit that adds a first argument to a call."""
        at = self.source.open_paren(call) + 1
        if not call.args and not call.keywords:
            return Edit(at, at, text)
        at = self.source.skip(at)
        return Edit(at, at, text + ", ")

    def insert_last(self, call: ast.Call, text: str) -> Edit:
        """An edit that adds a last argument to a call."""
        parts = [*call.args, *(k.value for k in call.keywords)]
        end = self.source.end(call) - 1
        if not parts:
            at = self.source.open_paren(call) + 1
            return Edit(at, at, text)
        at = max(self.source.end(p) for p in parts)
        comma = False
        while (place := self.source.skip(at)) < end:
            comma = self.source.data[place] == 44  # ','
            at = place + 1
        return Edit(at, at, f" {text}" if comma else f", {text}")

    def argument_start(self, call: ast.Call, arg: ast.expr) -> int:
        """Where a positional argument starts, with the parentheses around it."""
        earlier = call.args[: call.args.index(arg)]
        if not earlier:
            return self.source.skip(self.source.open_paren(call) + 1)
        comma = self.source.skip(self.source.end(earlier[-1]), also=b")")
        return self.source.skip(comma + 1)

    def unkey(self, keyword: ast.keyword) -> Edit:
        """An edit that makes a keyword argument positional."""
        return Edit(self.source.start(keyword), self.source.start(keyword.value), "")

    def parenthesised(self, node: ast.expr, text: str) -> str:
        """`text`, a comparison, in parentheses where the place of `node` needs them."""
        up = node.up  # type: ignore[attr-defined]
        needs = isinstance(
            up,
            ast.Compare | ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Subscript | ast.Await
            | ast.Starred | ast.FormattedValue | ast.NamedExpr,
        )  # fmt: skip
        if isinstance(up, ast.Call) and up.func is not node:
            needs = False
        if isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not):
            needs = False
        if isinstance(up, ast.Subscript) and up.slice is node:
            needs = False
        return f"({text})" if needs else text

    # -- the parts

    @property
    def helper_name(self) -> str:
        """The name of the helper variable, once it was asked for."""
        return self._helper

    @functools.cached_property
    def helper_line(self) -> ast.Assign | None:
        """The line that names the device, where the module has it already."""
        for stmt in self.tree.body:
            if (
                isinstance(stmt, ast.Assign)
                and isinstance(stmt.targets[0], ast.Name)
                and stmt.targets[0].id.startswith(_HELPER_NAMES)
                and _HELPER.fullmatch(self.text(stmt.value))
                and len(self.names.module.bindings.get(stmt.targets[0].id, [])) == 1
            ):
                return stmt
        return None

    @property
    def by_build(self) -> bool:
        """Whether the helper is what torch was built for, and not asked whether it is there."""
        if self.helper_line is None:
            return self.chosen_late
        found = _HELPER.fullmatch(self.text(self.helper_line.value))
        return found is not None and not found["asks"]

    several_vendors = False  # known from elsewhere

    def _kept_lines(self) -> list[tuple[int, int]]:
        """Ranges of lines that comments keep: a statement that the comment is on; the one after a
        comment that stands alone.
        """
        data = self.source.data
        if not _KEEP.search(data):
            return []
        lines = {self.source.place(m.start())[0] for m in _KEEP.finditer(data)}
        ranges = []
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.stmt):
                continue
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            last = node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            head = body[0].lineno - 1 if body else last
            before = first - 1
            if before in lines and data[self.source.starts[before - 1] :].lstrip()[:1] == b"#":
                ranges.append((first, last))
            elif any(first <= line <= max(head, first) for line in lines):
                ranges.append((first, max(head, first)))
        return ranges

    def findings(self) -> list[Finding]:
        """The findings, with texts and places."""
        found = []
        for d in self.drafts:
            line, column = self.source.place(d.start)
            end_line, end_column = self.source.place(d.end)
            inside = [e for e in self.edits if d.start <= e.start and e.end <= d.end]
            after = ""
            if d.kind == "changed":
                after = _applied(self.source.data, d.start, d.end, inside)
            found.append(
                Finding(
                    self.path,
                    line,
                    column,
                    end_line,
                    end_column,
                    d.rule.code,
                    d.kind,
                    d.message,
                    d.tip,
                    d.severity,
                    d.rule.safe,
                    self.source.slice(d.start, d.end),
                    after,
                    d.api,
                    d.category,
                )
            )
        return sorted(set(found))


def _of_cuda_alone(test: ast.expr) -> bool:
    """Whether it is `x == "cuda"` beside a branch for another vendor's device, which stays."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and any(
            isinstance(n, ast.Constant) and n.value == "cuda"
            for n in (test.left, *test.comparators)
        )
        and any(word.partition(":")[0] in vendors.DEVICES for word in compared_beside(test))
    )


def _for_each(node: ast.AST) -> Iterator[ast.AST]:
    """What runs for each of a number: the body of a loop or comprehension over it."""
    for child, up in ancestors(node):
        if isinstance(up, ast.For) and up.iter is child:
            yield from up.body
        elif isinstance(up, ast.comprehension) and up.iter is child:
            yield up.up  # type: ignore[attr-defined]
        if isinstance(up, ast.stmt):
            return


def _heads(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The packages that a statement imports from; none of its own package."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return set() if node.level else {(node.module or "").partition(".")[0]}


def _applied(data: bytes, start: int, end: int, edits: list[Edit]) -> str:
    pieces, at = [], start
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        pieces += [data[at : edit.start], edit.text.encode()]
        at = edit.end
    return b"".join([*pieces, data[at:end]]).decode(errors="replace")


def _indent(source: Source, tree: ast.Module) -> str:
    """By how much the module's blocks are indented: by what the first of them is."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(node, ast.stmt) or not body or body[0].lineno == node.lineno:
            continue
        outer, inner = source.start(node), source.start(body[0])
        around = source.slice(source.line_start(outer), outer)
        whole = source.slice(source.line_start(inner), inner)
        if whole.startswith(around) and whole.isspace():
            return whole.removeprefix(around)
    return "    "


def alone(module: Module, node: ast.expr) -> ast.Expr | None:
    """The statement that is nothing but `node` and shares its lines with no other, or None."""
    stmt = statement(node)
    if not isinstance(stmt, ast.Expr) or stmt.value is not node:
        return None
    source = module.source
    start, end = source.start(stmt), source.end(stmt)
    before = source.slice(source.line_start(start), start)
    after = source.slice(end, source.line_end(end)).strip()
    return stmt if not before.strip() and (not after or after.startswith("#")) else None
