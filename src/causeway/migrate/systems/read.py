"""The first step: CUDA's names in place of a system's, without what only its package needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from causeway.compat import System, names
from causeway.migrate import knowledge, vendors
from causeway.migrate.finding import Category, Kind, Severity
from causeway.migrate.module import Draft, Module, Use
from causeway.migrate.names import Scope, ancestors, block, called, statement
from causeway.migrate.systems import branches
from causeway.migrate.systems.back import Piece
from causeway.migrate.systems.rules import RULES

_READS = {
    "os.getenv", "os.environ.get", "os.environ.setdefault", "os.environ.pop", "os.putenv",
    "os.unsetenv",
}  # fmt: skip
_PLAIN = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.boolop,
    ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


@dataclass
class Reading:
    """What the first step made of a module."""

    pieces: list[Piece] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    kept_tests: list[branches.Range] = field(default_factory=list)  # of branches that were joined
    by_vendor: bool = False  # nothing of it is to be converted


@dataclass(frozen=True)
class _Named:
    """What a name of a system's is in torch: the table's entry, or torch's or CUDA's own name."""

    api: str  # the system's, as far as it is known
    entry: names.Name | None = None
    to: str = ""


class _Reader:
    def __init__(self, module: Module, systems: list[System], stay: frozenset[int]) -> None:
        self.module, self.systems, self.stay = module, systems, stay
        self.source = module.source
        self.out = Reading()
        self.devices = {s.device for s in systems if s.device}
        renamed = {old: new for s in systems for old, new in (s.modules | s.inner).items()}
        self.renamed = {old: renamed[old] for old in sorted(renamed, key=len, reverse=True)}
        self.tables = sorted(names.modules(), key=len, reverse=True)
        self.packages = {package for s in systems for package in s.packages}
        self.switches = {name for s in systems for name in s.switches}
        self.gone: list[ast.stmt] = []  # statements that go
        self.unread: list[ast.expr] = []  # arguments that are not needed any more
        self.moved: dict[int, str] = {}  # id of a Name that an import brought: its meaning in torch
        self.written: set[int] = set()  # id of the root of each use that is written anew
        self.cuda = False  # whether CUDA's names stand in for something
        self.strong = False  # whether more than strings shows the system
        self.needed = False  # whether what a package adds to torch stays in use
        self.sent = False  # whether CUDA's names, which a package redirects, stay in use

    # -- what is there

    def uses(self) -> Iterator[Use]:
        """The outermost names that belong to a system."""
        module = self.module
        for kind in (ast.Attribute, ast.Name):
            for node in module.names.all(kind):
                up = node.up  # type: ignore[attr-defined]
                if isinstance(up, ast.Attribute) and up.value is node:
                    continue
                api = module.names.resolve(node) or ""
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    continue
                if self._own(api):
                    yield Use(node, api)  # type: ignore[arg-type]

    def _own(self, api: str) -> bool:
        head, _, rest = api.partition(".")
        if head in self.packages:
            return True
        first = rest.partition(".")[0]
        return head == "torch" and bool(rest) and (
            first in self.devices or rest in names.modules()["torch"]
        )  # fmt: skip

    def meaning(self, api: str) -> _Named | None:
        """What is known of a name; None where nothing is."""
        for _ in range(4):
            for module in self.tables:
                if api.startswith(f"{module}."):
                    entry = names.modules()[module].get(api[len(module) + 1 :])
                    if entry is not None:
                        return _Named(api, entry)
            home = next((m for m in self.renamed if api == m or api.startswith(f"{m}.")), "")
            if not home:
                break
            api = self.renamed[home] + api[len(home) :]
        head, _, rest = api.partition(".")
        first, _, last = rest.partition(".")
        if head == "torch" and first in self.devices:
            return _Named(api, to=f"torch.cuda.{last}" if last else "torch.cuda")
        if head in ("torch", "torchvision"):
            return _Named(api, to=api)
        return None

    def known_part(self, use: Use) -> tuple[ast.Name | ast.Attribute, _Named | None]:
        """A use as far as it is known: of `torch_npu.optim.NpuFusedSGD.step` the class."""
        node, api = use.node, use.api
        while True:
            found = self.meaning(api)
            unknown = found is None or (
                found.to.startswith("torch.cuda.") and not knowledge.find(found.to)
            )
            inner = getattr(node, "value", None)
            if not unknown or not isinstance(inner, ast.Name | ast.Attribute):
                break
            shorter = self.meaning(api.rpartition(".")[0])
            if shorter is None or shorter.to in ("torch.cuda", "torch") or "." not in api:
                break
            node, api = inner, api.rpartition(".")[0]
        return node, found

    # -- what is done

    def read(self) -> Reading:
        """All of it."""
        self.strong = any(self.brings(node) for node in self.module.imports())
        for choice in self.module.names.all(ast.IfExp):
            self._index(choice)
        for use in sorted(self.uses(), key=lambda u: self.source.start(u.node)):
            self._use(use)
        for call in self.module.names.all(ast.Call):
            self._method(call)
        for function in self.module.names.all(ast.FunctionDef):
            if function.name in self.devices and isinstance(function.up, ast.ClassDef):  # type: ignore[attr-defined]
                at = self.source.start(function) + len("def ")
                self._word(function, at, at + len(function.name), "cuda")
        for node in self.module.names.all(ast.Attribute):
            self._asked(node)
        for constant in self.module.names.all(ast.Constant):
            self._constant(constant)
        for joined in self.module.names.all(ast.JoinedStr):
            self._fstring(joined)
        for kind in (ast.BinOp, ast.JoinedStr, ast.Call):
            for expression in self.module.names.all(kind):
                self._assembled(expression)
        self._has()
        self._imports()
        self._remove()
        return self.out

    def _use(self, use: Use) -> None:
        module, source = self.module, self.source
        self.strong = True
        node, found = self.known_part(use)
        start, end = source.start(node), source.end(node)
        if start in self.stay or module.kept(statement(node)) or not self._placed_right(node):
            self.needed |= use.api.startswith("torch.")
            return
        if any(
            up in self.gone or up in self.unread for up in (node, *(u for _, u in ancestors(node)))
        ):
            self.written.add(id(module.root(node)))  # it goes with what is around it
            return
        if self._activities(use.node, use):
            return
        call = node.up if isinstance(node.up, ast.Call) and node.up.func is node else None  # type: ignore[union-attr]
        stored = not isinstance(node.ctx, ast.Load)
        if found is None or (found.entry and (found.entry.instead or found.entry.hand)):
            if use.api in self.packages or use.api in self.renamed:
                return  # the module itself: its import says what it is
            if call and use.api.endswith("mindspore.set_context") and self._context(call):
                return
            self._by_hand(node, use, found)
            return
        entry = found.entry
        if entry is not None and entry.drop:
            self._drop(node, call, use, entry)
            return
        if stored:
            self._by_hand(node, use, found)
            return
        if entry is not None and entry.form:
            self._form(node, call, use, entry)
            return
        to = entry.to if entry is not None else found.to
        if entry is not None and call and any(k.arg in entry.leave for k in call.keywords):
            without = f"{to}, without {' and '.join(entry.leave)}"
            self._by_hand(node, use, _Named(use.api, names.Name(hand=without)))
            return
        imported = isinstance(node, ast.Name) and all(
            b.kind == "import" for b in module.names.bindings(node)
        )
        if to == "torch.cuda" and (imported or not isinstance(node, ast.Name)):
            self._piece(start, end, f"{self._torch(node)}.get_device_module()", loan=False)
            self.written.add(id(module.root(node)))
            self.say("CW171", node, "changed", f"the device's module in place of `{use.api}`",
                     "It is that of whichever device is there.", use.api)  # fmt: skip
            return
        if imported:
            if "." not in to:
                return  # a module under another name; the import is written anew
            self.moved[id(node)] = to
            return
        if isinstance(node, ast.Name):
            return  # assigned somewhere, where it is written
        root = module.root(node)
        assert root is not None
        inner = entry is None and self._inner(use.api) and not to.startswith("torch.cuda")
        if inner and self.module.names.resolve(root) not in self.packages:
            return  # the import is written anew, and the names stay
        loan = to.startswith("torch.cuda") or to.endswith("is_nccl_available")
        text = self._spelled(node, to)
        if source.slice(start, end) == text:
            return
        if self._itself(node, text):
            assigned = statement(node)
            start, end, text = source.start(assigned), source.end(assigned), f"import {text}"
        self._piece(start, end, text, loan=loan)
        self.written.add(id(root))
        if not loan:
            self.say("CW171", node, "changed", f"`{to}` in place of `{use.api}`",
                      "It takes the same arguments.", use.api)  # fmt: skip

    @staticmethod
    def _itself(node: ast.expr, text: str) -> bool:
        """`torch = mindtorch.torch`, which would be `torch = torch`."""
        up = node.up  # type: ignore[attr-defined]
        return (
            isinstance(up, ast.Assign) and up.value is node and len(up.targets) == 1
            and isinstance(up.targets[0], ast.Name) and up.targets[0].id == text
        )  # fmt: skip

    def _spelled(self, node: ast.AST, api: str) -> str:
        head, _, rest = api.partition(".")
        if head != "torch":
            return api
        return self._torch(node) + (f".{rest}" if rest else "")

    def _torch(self, node: ast.AST) -> str:
        """How torch is called where `node` is, also where its name comes from a system's import."""
        module = self.module
        found = module.torch(node)
        scope = module.names.module
        if module.names.lookup(found, scope) == "torch":
            return found
        return next((n for n in scope.bindings if self._is_torch(n)), found)

    def _is_torch(self, name: str, scope: Scope | None = None) -> bool:
        api = self.module.names.lookup(name, scope or self.module.names.module) or ""
        return api == "torch" or (self._inner(api) and self._to(api) == "torch")

    def _to(self, api: str) -> str:
        found = self.meaning(api)
        return "" if found is None else found.entry.to if found.entry else found.to

    def _placed_right(self, node: ast.expr) -> bool:
        """Whether the parser places a node of an f-string rightly, which it does not always."""
        text = self.module.text(node)
        return text.endswith(node.attr if isinstance(node, ast.Attribute) else node.id)  # type: ignore[attr-defined]

    def _piece(self, start: int, end: int, text: str, *, loan: bool) -> None:
        if not any(p.start < end and start < p.end for p in self.out.pieces):
            self.out.pieces.append(Piece(start, end, text, loan))
            self.cuda |= loan

    def say(
        self, code: str, node: ast.AST, kind: Kind, message: str, tip: str = "", api: str = "",
        category: Category = "api",
    ) -> None:  # fmt: skip
        rule = RULES[code]
        if self.module.kept(node) or not self.module.settings.wants(code):
            return
        severity: Severity = "info" if kind in ("changed", "portable") else rule.severity
        start, end = self.source.start(node), self.source.end(node)
        self.out.drafts.append(
            Draft(rule, start, end, kind, message, tip or rule.by_hand, api, category, severity)
        )

    def _by_hand(self, node: ast.expr, use: Use, found: _Named | None) -> None:
        api = found.api if found else use.api
        self.needed |= use.api.startswith("torch.") and not isinstance(node, ast.Name)
        entry = found.entry if found else None
        tip = (entry.instead or entry.hand) if entry else ""
        tip = f"Write instead: {tip}." if tip else RULES["CW173"].by_hand
        operator = use.api.rpartition(".")[2].startswith("npu_")
        self.say("CW173", node, "manual", f"`{api}` is the system's own", tip, use.api,
                  "operator" if operator else "api")  # fmt: skip

    def _drop(self, node: ast.expr, call: ast.Call | None, use: Use, entry: names.Name) -> None:
        """Take a switch out, where it is a statement of its own."""
        stmt = statement(node)
        alone = (isinstance(stmt, ast.Expr) and stmt.value is call) or (
            isinstance(stmt, ast.Assign) and stmt.targets == [node]
            and isinstance(stmt.value, ast.Constant)
        )  # fmt: skip
        message = f"`{use.api}` has no effect on other devices"
        if alone and (call is None or not any(_calls(a) for a in (*call.args, *call.keywords))):
            self.gone.append(stmt)
            self.written.add(id(self.module.root(node)))
            why = f"{entry.drop[0].upper()}{entry.drop[1:]}."
            self.say("CW172", stmt, "changed", message, why, use.api)
        else:
            self.needed = True
            self.say("CW172", node, "manual", message, f"Leave it out: {entry.drop}.", use.api)

    def _form(self, node: ast.expr, call: ast.Call | None, use: Use, entry: names.Name) -> None:
        """Write a call as the table says, of positional arguments, or of none."""
        wanted = len(set(re.findall(r"\{(\d)\}", entry.form)))
        plain = call and (not wanted or not call.keywords) and not any(
            isinstance(a, ast.Starred) for a in call.args
        )  # fmt: skip
        unread = [] if call is None else call.args[wanted:] + [k.value for k in call.keywords]
        if call is None or not plain or len(call.args) < wanted or any(map(_calls, unread)):
            written = entry.form.format("x", "y")
            self._by_hand(node, use, _Named(use.api, names.Name(hand=written)))
            return
        self.unread += unread
        source, stmt = self.source, statement(node)
        if entry.form == "{0}" and isinstance(stmt, ast.Assign) and stmt.value is call and (
            len(stmt.targets) == 1 and self.module.text(stmt.targets[0])
            == self.module.text(call.args[0])
        ):  # fmt: skip
            self.gone.append(stmt)
            self.written.add(id(self.module.root(node)))
            self.say("CW171", stmt, "changed", f"nothing is left of `{use.api}`",
                     "The result is the same.", use.api)  # fmt: skip
            return
        at = source.start(call)
        self.written.add(id(self.module.root(node)))
        torch = self._torch(node)
        text = ""
        for part in re.split(r"(\{\d\})", entry.form):
            if not re.fullmatch(r"\{\d\}", part):
                text += re.sub(r"\btorch\b(?=\.)", torch, part)
                continue
            arg = call.args[int(part[1])]
            closed = entry.form.startswith(f"{part}.") and not isinstance(arg, _TIGHT)
            self._piece(at, source.start(arg), text + "(" * closed, loan=False)
            at, text = source.end(arg), ")" * closed
        self._piece(at, source.end(call), text, loan="cuda" in entry.form)
        self.say("CW171", call, "changed", f"torch's operators in place of `{use.api}`",
                  "The result is the same.", use.api)  # fmt: skip

    def _context(self, call: ast.Call) -> bool:
        """mindspore.set_context(device_target="Ascend", device_id=1): torch.set_default_device."""
        given = {k.arg: k.value for k in call.keywords}
        target, index = given.get("device_target"), given.get("device_id")
        stmt = statement(call)
        mode = self.module.resolve(given["mode"]) if "mode" in given else ""
        if set(given) == {"mode"} and mode.endswith(".PYNATIVE_MODE") and stmt.value is call:  # type: ignore[attr-defined]
            self.gone.append(stmt)
            self.written |= {id(self.module.root(n)) for n in (call.func, given["mode"])}
            self.say("CW172", stmt, "changed", "torch runs so by itself", "Leave it out.",
                     "mindspore.set_context")  # fmt: skip
            return True
        if call.args or not isinstance(stmt, ast.Expr) or set(given) - {
            "device_target", "device_id", "mode",
        }:  # fmt: skip
            return False
        name = target.value if isinstance(target, ast.Constant) else None
        if name not in ("Ascend", "GPU", "CPU"):
            return False
        where = "cpu" if name == "CPU" else "cuda"
        if index is not None:
            if not (isinstance(index, ast.Constant) and isinstance(index.value, int)):
                return False
            where += f":{index.value}" if name != "CPU" else ""
        quote, torch = self.module.quote, self._torch(call)
        start, end = self.source.start(call), self.source.end(call)
        self._piece(start, end, f"{torch}.set_default_device({quote}{where}{quote})",
                    loan=name != "CPU")  # fmt: skip
        self.written.add(id(self.module.root(call.func)))
        if name == "CPU":
            self.say("CW171", call, "changed", "torch's name for the place of new tensors",
                      "It holds for what is made afterwards.", "mindspore.set_context")  # fmt: skip
        return True

    def _activities(self, node: ast.expr, use: Use) -> bool:
        """`[ProfilerActivity.CPU, ProfilerActivity.NPU]`: all that are supported."""
        if not re.search(r"ProfilerActivity\.(?:NPU|MLU|CUDA|PrivateUse1)$", use.api):
            return False
        listed = node.up  # type: ignore[attr-defined]
        if isinstance(listed, ast.List | ast.Tuple | ast.Set) and all(
            "ProfilerActivity." in (self.module.names.resolve(e) or "") for e in listed.elts
        ):
            start, end = self.source.start(listed), self.source.end(listed)
            if start in self.stay:
                return True
            self.out.pieces = [p for p in self.out.pieces if not start <= p.start < end]
            self.out.drafts = [d for d in self.out.drafts if not start <= d.start < end]
            torch = self._torch(node)
            self._piece(start, end, f"{torch}.profiler.supported_activities()", loan=False)
            for element in listed.elts:
                self.written.add(id(self.module.root(element)))
                self.moved.pop(id(element if isinstance(element, ast.Name) else getattr(
                    element, "value", None)), None)  # fmt: skip
            self.say("CW171", listed, "changed", "the activities of whichever device is there",
                      "It has the CPU's too.", use.api)  # fmt: skip
        else:
            self.say("CW173", node, "manual", f"`{use.api}` is one device's activity",
                      "Write instead: torch.profiler.supported_activities().", use.api)  # fmt: skip
        return True

    def _index(self, choice: ast.IfExp) -> None:
        """`f"npu:{E}" if isinstance(E, int) else E`, which Ascend's converter writes for E."""
        device = ast.dump(choice.orelse)
        test, text = choice.test, choice.body
        if not (
            isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance"
            and [ast.dump(a) for a in test.args[:1]] == [device]
            and getattr(test.args[-1], "id", "") == "int"
            and isinstance(text, ast.JoinedStr) and len(text.values) == 2
            and isinstance(text.values[0], ast.Constant)
            and str(text.values[0].value)[:-1] in self.devices
            and isinstance(text.values[1], ast.FormattedValue)
            and ast.dump(text.values[1].value) == device
        ):  # fmt: skip
            return
        source = self.source
        if source.start(choice) in self.stay or self.module.kept(statement(choice)):
            return
        self.strong = True
        self._piece(source.start(choice), source.start(choice.orelse), "", loan=False)
        self.say("CW171", choice, "changed", "a number is the accelerator's index by itself",
                 "torch.device(0) is that of the accelerator.", "torch.device")  # fmt: skip

    def _method(self, call: ast.Call) -> None:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in self.devices:
            return
        api = self.module.resolve(func)
        if api.startswith("torch.") or api.partition(".")[0] in self.packages:
            return
        end = self.source.end(func)
        self.needed |= end - len(func.attr) in self.stay
        self._word(func, end - len(func.attr), end, "cuda")

    def _asked(self, node: ast.Attribute) -> None:
        """`.is_npu`, and `"torch.npu.FloatTensor"`."""
        device, _, rest = node.attr.partition("_")
        if device in self.devices and rest in ("stream", "event"):
            end = self.source.end(node)
            self._word(node, end - len(node.attr), end, f"cuda_{rest}")
            return
        name = node.attr.removeprefix("is_")
        if node.attr.startswith("is_") and name in self.devices:
            if self._chooses_own(node):
                self.needed = True
                return
            end = self.source.end(node)
            self._word(node, end - len(node.attr), end, "is_cuda")

    def _chooses_own(self, node: ast.AST) -> bool:
        """Whether a question decides on what only the system has: `if x.is_npu: return
        torch_npu.npu_swiglu_quant(x)`, or a function of the program's with its name, `_norm_npu`.
        """
        for child, up in ancestors(node):
            if isinstance(up, ast.If | ast.IfExp) and up.test is child:
                body = up.body if isinstance(up.body, list) else [up.body]
                return any(self._only_here(n) for part in body for n in ast.walk(part))
            if not isinstance(up, ast.BoolOp) or not isinstance(up.op, ast.And):
                return False
        return False

    def _only_here(self, node: ast.AST) -> bool:
        """Whether a call is of a function that has no counterpart, or of one with the device's
        name, which is not torch's.
        """
        if not isinstance(node, ast.Call):
            return False
        api = self.module.names.resolve(node.func) or ""
        if api.partition(".")[0] in self.packages:
            found = self.meaning(api)
            return found is None or bool(found.entry and (found.entry.instead or found.entry.hand))
        name = called(node)
        return any(name.startswith(f"{d}_") or name.endswith(f"_{d}") for d in self.devices)

    def _word(self, node: ast.AST, start: int, end: int, text: str) -> None:
        if start in self.stay or self.module.kept(statement(node)):
            self.needed |= start not in self.stay
            return
        self.strong = True
        written = self.source.slice(start, end)
        if re.fullmatch(r"\w+", written) and any(d in written for d in self.devices):
            self._piece(start, end, text, loan=True)

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        up = node.up  # type: ignore[attr-defined]
        if not isinstance(value, str) or isinstance(up, ast.JoinedStr | ast.Expr):
            return
        start = self.source.start(node)
        if start in self.stay or self.module.kept(statement(node)):
            self.needed |= start not in self.stay and self._device_word(value) is not None
            return
        if self._variable(node, value):
            return
        asks = self.module.resolve(up.func) if isinstance(up, ast.Call) else ""
        if value in self.packages and asks.endswith(("util.find_spec", "import_module")):
            problem = "it asks whether the package is there"
            tip = "Ask torch.accelerator.is_available() instead."
            self.say("CW170", up, "manual", problem, tip, value)
            return
        new = self._device_word(value)
        if new is None:
            return
        if isinstance(up, ast.Compare) and self._chooses_own(up):
            self.needed = True
            return
        parts = self.source.string_parts(node) or self.module.joined_parts(node)
        if parts is None or "b" in parts[0].lower() or "\\" in parts[2]:
            return
        text = f"{parts[0]}{parts[1]}{new}{parts[1]}"
        self._piece(start, self.source.end(node), text, loan=True)

    def _device_word(self, value: str) -> str | None:
        """A string of CUDA's for one of a system's: "cuda:0" for "npu:0"."""
        for device in self.devices:
            if value == device or re.match(rf"{device}:(\d*|%[ds]|\{{[^{{}}]*\}})\Z", value):
                return "cuda" + value[len(device) :]
            if re.search(rf"\btorch\.{device}\.", value):  # a type, an annotation
                return re.sub(rf"\btorch\.{device}\.", "torch.cuda.", value)
        for system in self.systems:
            for backend in system.backends:
                pairs = rf"(?:\w+:\w+,)*(?:{system.device}:)?{backend}(?:,\w+:\w+)*\Z"
                mixed = rf"(?:\w+:\w+,)*{system.device}:nccl(?:,\w+:\w+)*\Z"  # no such pair is
                if re.match(pairs, value) or re.match(mixed, value):
                    value = re.sub(rf"\b{backend}\b", "nccl", value)
                    return re.sub(rf"\b{system.device}:", "cuda:", value)
        return None

    def _fstring(self, node: ast.JoinedStr) -> None:
        start = self.source.start(node)
        if start in self.stay or self.module.kept(statement(node)):
            return
        text = self.module.text(node)
        for device in self.devices:
            opening = re.match(rf"""[fFrR]*(?:'{{3}}|"{{3}}|'|")({device})(?::|$|["'])""", text)
            if opening:
                self._piece(start + opening.start(1), start + opening.end(1), "cuda", loan=True)

    def _assembled(self, node: ast.expr) -> None:
        """A device's name that is put together so that it stays: `"n" + "pu"`, `"cu" f"da:{i}"`.
        What makes a device of that name has to stay with it.
        """
        up, value = node.up, _put_together(node)  # type: ignore[attr-defined]
        if value is None or isinstance(up, ast.Expr) or _put_together(up) is not None:
            return
        own = next((d for d in self.devices if _is_device(value, d)), "")
        if self.module.kept(statement(node)):
            self.needed |= bool(own)
            return
        sent = not own and _is_device(value, "cuda") and self.redirected()
        low, high = self.source.start(node), self.source.end(node)
        word = own or "cuda"
        if not (own or sent) or any(low <= p.start < high for p in self.out.pieces):
            return
        first = self.module.text(_first_piece(node))
        if re.match(rf"""\w*('{{3}}|\"{{3}}|'|\"){word}(:|$|['\"])""", first):
            return  # found as a word, here or by the rules for CUDA, who know what it is for
        self.strong = True
        self.needed |= bool(own)
        self.sent |= sent
        self.say("CW176", node, "manual", f"`{self.module.text(node)}` is the name of a device",
                 api=own or "cuda")  # fmt: skip

    def _variable(self, node: ast.Constant, value: str) -> bool:
        """A variable of a system's runtime, where the environment is read or set."""
        found = next((s.variables[value] for s in self.systems if value in s.variables), None)
        up = node.up  # type: ignore[attr-defined]
        if found is None:
            return False
        if isinstance(up, ast.Subscript) and up.slice is node:
            place, sets = up.value, not isinstance(up.ctx, ast.Load)
            fits = self.module.resolve(place) == "os.environ"
        elif isinstance(up, ast.Call) and up.args[:1] == [node]:
            api = self.module.resolve(up.func)
            fits, sets = api in _READS, api.endswith(("setdefault", "putenv"))
        else:
            return False
        new = found.to or (f"CAUSEWAY_{found.setting.upper()}" if found.setting else "")
        if not fits:
            return False
        if new and found.read == "as it is":
            parts = self.source.string_parts(node)
            if parts is not None:
                text = f"{parts[0]}{parts[1]}{new}{parts[1]}"
                self._piece(self.source.start(node), self.source.end(node), text, loan=False)
                self.say("CW175", node, "changed", f"{new} in place of {value}",
                          "It is read for every device.", value)  # fmt: skip
        elif new:
            tip = f"Write instead: {new}; see docs/settings.md for its values."
            self.say("CW175", node, "manual", f"{value} is read by the system alone", tip, value)
        elif sets:
            self.say("CW175", node, "portable", f"{value} has no effect on other devices",
                      found.says, value)  # fmt: skip
        return True

    def _has(self) -> None:
        """`hasattr(torch, "npu") and …`: torch.accelerator is always there."""
        for call in self.module.names.all(ast.Call):
            if not (
                isinstance(call.func, ast.Name) and call.func.id in ("getattr", "hasattr")
                and len(call.args) >= 2 and isinstance(call.args[1], ast.Constant)
                and call.args[1].value in self.devices
                and self.module.resolve(call.args[0]) == "torch"
            ):  # fmt: skip
                continue
            start, end, up = self.source.start(call), self.source.end(call), call.up  # type: ignore[attr-defined]
            if start in self.stay:
                continue
            self.out.pieces = [p for p in self.out.pieces if not start <= p.start < end]
            if call.func.id == "getattr":
                self._piece(start, end, f"{self._torch(call)}.get_device_module()", loan=False)
                self.say("CW171", call, "changed", "the module of whichever device is there",
                         "Without one it is torch.cpu.", "torch")  # fmt: skip
                continue
            if isinstance(up, ast.BoolOp) and isinstance(up.op, ast.And) and up.values[-1] != call:
                behind = up.values[up.values.index(call) + 1]
                asks = any(isinstance(n, ast.Attribute) and n.attr == "is_available"
                           for n in ast.walk(behind))  # fmt: skip
                if asks:
                    self._piece(start, self.source.start(behind), "", loan=False)
                    self.say("CW171", call, "changed", "torch.accelerator is always there",
                              "The question behind it is for any device.", "torch")  # fmt: skip
                    continue
            torch = self._torch(call)
            self._piece(start, end, f"{torch}.cuda.is_available()", loan=True)

    # -- imports, and what goes with them

    def _imports(self) -> None:
        for node in self.module.imports():
            if isinstance(node, ast.ImportFrom) and node.level:
                continue
            if self.brings(node):
                self._import(node, [self._meant(node, alias) for alias in node.names])

    def brings(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Whether an import brings something of a system's."""
        return not getattr(node, "level", 0) and any(
            self._own(self._meant(node, alias)) for alias in node.names
        )

    @staticmethod
    def _meant(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
        return alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"

    def redirected(self) -> bool:
        """Whether the module sends CUDA's calls to the device, so that CUDA's names are its own."""
        wanted = {name for s in self.systems for name in s.redirects}
        return any(
            self._meant(node, alias) in wanted
            for node in self.module.imports() for alias in node.names
            if not getattr(node, "level", 0)
        )  # fmt: skip

    def _import(self, node: ast.Import | ast.ImportFrom, meant: list[str]) -> None:
        """Write an import anew: what it still has to bring, from where torch has it."""
        module, source = self.module, self.source
        same: list[str] = []
        lines: list[str] = []
        brought: dict[str, list[str]] = {}  # by module
        loan = False
        for alias, api in zip(node.names, meant, strict=True):
            name = alias.asname or alias.name.partition(".")[0]
            written = alias.name + (f" as {alias.asname}" if alias.asname else "")
            if not self._own(api) or alias.name == "*":
                same.append(written)
                continue
            uses = [
                n for n in module.names.all(ast.Name)
                if n.id == name and isinstance(n.ctx, ast.Load)
                and any(b.node is node for b in module.names.bindings(n))
            ]  # fmt: skip
            left = [n for n in uses if id(n) not in self.written and id(n) not in self.moved]
            to = self._to(api)
            torch_itself = isinstance(node, ast.Import) and not alias.asname and name == "torch"
            if torch_itself:  # `import torch.npu`
                lines.append("import torch")
            elif to and (to in ("torch", "torchvision") or self._inner(api)):
                if isinstance(node, ast.Import):
                    if left and not alias.asname:
                        same.append(written)
                    lines.append(f"import {to}" + (
                        f" as {alias.asname}" if alias.asname and alias.asname != to else ""
                    ))  # fmt: skip
                elif "." not in to:
                    lines.append(_import_line(to, name))
                else:
                    where, _, last = to.rpartition(".")
                    new = last + (f" as {name}" if name != last else "")
                    brought.setdefault(where, []).append(new)
            elif left or self._still(api) or self._exported(uses, api):
                same.append(written)
            elif not uses and api.startswith("mindspore.") and not module.imports_torch:
                same.append(written)  # a program of MindSpore's own, and none for MindTorch
            elif any(id(n) in self.moved for n in uses):
                where, _, last = to.rpartition(".")
                brought.setdefault(where, []).append(last + (f" as {name}" if name != last else ""))
                loan |= to.startswith("torch.cuda")
        lines += [f"from {where} import {', '.join(listed)}" for where, listed in brought.items()]
        if not lines and "torch" not in same and not self._torch_is_bound(node):
            lines.append("import torch")
        start, end = source.start(node), source.end(node)
        head = "import " if isinstance(node, ast.Import) else f"from {node.module} import "
        if len(same) == len(node.names):
            if any(self._own(api) for api in meant):
                self.say("CW170", node, "manual", f"`{module.text(node)}` is still needed",
                          "What it brings is used, and has to be written by hand first.",
                          meant[0])  # fmt: skip
            if not lines:
                return
        parts = ([head + ", ".join(same)] if same else []) + list(dict.fromkeys(lines))
        if not parts:
            self.gone.append(node)
        else:
            column = source.slice(source.line_start(start), start)
            gap = f"{source.newline}{column}" if not column.strip() else "; "
            parts[-1] = "  ".join([parts[-1], *source.comments(start, end)])
            self._piece(start, end, gap.join(parts), loan=loan)
        if not loan and len(same) < len(node.names):
            says = "the same names from torch" if lines else "torch finds a device by itself"
            self.say("CW170", node, "changed", says, "What it brought is written with torch now.",
                     meant[0])  # fmt: skip

    def _still(self, api: str) -> bool:
        """Whether an import that acts by itself has to: for the device, or for CUDA's names."""
        redirects = any(api in s.redirects for s in self.systems)
        return (self.needed and api in self.packages) or (self.sent and redirects)

    def _exported(self, uses: list[ast.Name], api: str) -> bool:
        """Whether a name that is not used here may be for others."""
        unused = not uses and api not in self.switches and not self._module(api)
        return unused and self.module.path.endswith("__init__.py")

    def _inner(self, api: str) -> bool:
        return any(api == old or api.startswith(f"{old}.") for s in self.systems for old in s.inner)

    def _module(self, api: str) -> bool:
        """Whether a name is a module of a package: nothing needs it that is not used."""
        return api in self.renamed or api in names.modules() or any(
            m.startswith(f"{api}.") for m in names.modules()
        )  # fmt: skip

    def _torch_is_bound(self, but: ast.AST) -> bool:
        """Whether torch has a name in the module, or nothing asks for one."""
        scope = but.scope  # type: ignore[attr-defined]
        bound = False
        while scope is not None and not bound:  # a function's own import serves the function
            bound = any(
                b.node is not but for name, made in scope.bindings.items()
                if self._is_torch(name, scope) for b in made
            )  # fmt: skip
            scope = scope.parent
        return bound or not any(p.text.startswith("torch.") for p in self.out.pieces)

    def _remove(self) -> None:
        """Take the statements out, and what is empty without them."""
        gone = {id(s) for s in self.gone}
        tops: list[ast.stmt] = list(self.gone)
        for stmt in self.gone:
            node = stmt
            while isinstance(up := node.up, ast.stmt):  # type: ignore[attr-defined]
                if up in tops or not self._empty(up, gone):
                    break
                gone.add(id(up))
                tops.append(up)
                node = up
        tops = [s for s in tops if not any(id(up) in gone for _, up in ancestors(s))]
        done: set[int] = set()
        for stmt in tops:
            if id(stmt) in done:
                continue
            if (flag := self._flag(stmt, gone)) is not None:
                tried, text = flag
                done |= {id(s) for s in tops if any(up is tried for _, up in ancestors(s))}
                self._swallow(tried)
                self._piece(self.source.start(tried), self.source.end(tried), text, loan=True)
                continue
            if self._tried(stmt):
                self._swallow(stmt)
                self.say("CW170", stmt, "manual", "the import tells whether the package is there",
                         "Ask torch.accelerator.is_available() instead of trying it.")  # fmt: skip
                continue
            self._cut(stmt, gone)
        self._close_gaps()

    def _tried(self, stmt: ast.stmt) -> bool:
        """Whether an import is tried, and what else is in the `try` is for when it fails or not."""
        tried = stmt.up  # type: ignore[attr-defined]
        return (
            isinstance(stmt, ast.Import | ast.ImportFrom)
            and isinstance(tried, ast.Try)
            and stmt in tried.body
            and bool(tried.handlers)
        )

    def _close_gaps(self) -> None:
        """Of the empty lines before and after what is taken out, keep those before."""
        data, found = self.source.data, list[Piece]()
        for piece in sorted(self.out.pieces):
            whole = not piece.text and piece.start == self.source.line_start(piece.start)
            last = found[-1] if found else None
            if whole and last is not None and not last.text and last.end == piece.start:
                found[-1] = Piece(last.start, piece.end, "")
            else:
                found.append(piece)
        for i, piece in enumerate(found):
            low, high = piece.start, piece.end
            if piece.text or low != self.source.line_start(low) or data[high - 1 : high] != b"\n":
                continue
            stop = self.source.line_end(high)
            before = data[self.source.line_start(max(low - 1, 0)) : low]
            free = i + 1 == len(found) or found[i + 1].start > stop
            if not before.strip() and not data[high:stop].strip() and stop < len(data) and free:
                found[i] = Piece(low, stop + len(self.source.newline), "")
        self.out.pieces = found

    def _empty(self, up: ast.stmt, gone: set[int]) -> bool:
        """Whether a compound statement does nothing once these are gone."""

        def bare(body: list[ast.stmt]) -> bool:
            return all(id(s) in gone or isinstance(s, ast.Pass) for s in body)

        if isinstance(up, ast.If):
            return bare(up.body) and bare(up.orelse) and all(
                isinstance(n, _PLAIN) or self._asks(n) for n in ast.walk(up.test)
            )  # fmt: skip
        if isinstance(up, ast.Try):
            handled = all(bare(h.body) for h in up.handlers)
            return bare(up.body) and handled and bare(up.orelse) and bare(up.finalbody)
        return False

    def _asks(self, node: ast.AST) -> bool:
        """Whether a call only asks whether something is there."""
        return isinstance(node, ast.Call) and (
            getattr(node.func, "id", "") == "hasattr"
            or getattr(node.func, "attr", "") == "is_available"
        )

    def _flag(self, stmt: ast.stmt, gone: set[int]) -> tuple[ast.Try, str] | None:
        """`try: import torch_npu; HAS = True`, `except ImportError: HAS = False` asks whether there
        is a device: the statement, and the assignment that it becomes.
        """
        tried = stmt.up  # type: ignore[attr-defined]
        if not isinstance(tried, ast.Try) or stmt not in tried.body or tried.finalbody:
            return None
        good = [s for s in (*tried.body, *tried.orelse) if id(s) not in gone]
        name = _set_to(good, True)
        if not name or any(
            _set_to([s for s in h.body if not isinstance(s, ast.Pass)], False) != name
            for h in tried.handlers
        ):
            return None
        return tried, f"{name} = {self._torch(tried)}.cuda.is_available()"

    def _swallow(self, node: ast.stmt) -> None:
        low, high = self.source.start(node), self.source.end(node)
        self.out.pieces = [p for p in self.out.pieces if not low <= p.start < high]
        self.out.drafts = [d for d in self.out.drafts if not low <= d.start < high]

    def _cut(self, stmt: ast.stmt, gone: set[int]) -> None:
        source = self.source
        start, end = source.start(stmt), source.end(stmt)
        self.out.pieces = [p for p in self.out.pieces if not start <= p.start < end]
        low, high = source.line_start(start), source.line_end(end)
        rest = source.slice(end, high).strip()
        lonely = not isinstance(stmt.up, ast.Module) and all(  # type: ignore[attr-defined]
            id(s) in gone for s in block(stmt)
        )
        if lonely and block(stmt)[0] is not stmt:
            lonely = False
        if lonely:
            self._piece(start, end, "pass", loan=False)
        elif source.slice(low, start).strip() or (rest and not rest.startswith("#")):
            if rest.startswith(";"):
                end = source.skip(source.skip(end) + 1)
            elif source.slice(low, start).rstrip().endswith(";"):
                start = low + len(source.slice(low, start).rstrip().removesuffix(";").encode())
            self._piece(start, end, "", loan=False)
        elif rest and not isinstance(stmt, ast.Import | ast.ImportFrom):
            self._piece(
                start,
                end + len(source.slice(end, high)) - len(source.slice(end, high).lstrip()),
                "",
                loan=False,
            )
        else:
            # What is said of an import goes with it.
            high += len(source.newline) if high < len(source.data) else 0
            self._piece(low, high, "", loan=False)


_TIGHT = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)


def _put_together(node: ast.AST) -> str | None:
    """The text of an expression that joins pieces of text, with "\0" for what is not known; None
    for any other.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_put_together(side) for side in (node.left, node.right)]
        strings = [_string(side) for side in (node.left, node.right)]
        texts = [b if a is None else a for a, b in zip(sides, strings, strict=True)]
        known = any(text is not None for text in texts)
        return "".join("\0" if text is None else text for text in texts) if known else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text = _string(node.left)
        return None if text is None else _filled(text, r"%[sdi]", _elements(node.right))
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(v.value) if isinstance(v, ast.Constant) else _known(getattr(v, "value", v))
            for v in node.values
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
        text = _string(node.func.value)
        if text is not None and node.func.attr == "format":
            return _filled(text, r"\{\}", node.args)
        if text is not None and node.func.attr == "join" and len(node.args) == 1:
            return text.join(map(_known, _elements(node.args[0])))
    return None


def _string(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _known(node: ast.AST) -> str:
    text = _put_together(node)
    given = node.value if isinstance(node, ast.Constant) else "\0"
    return str(given) if text is None else text


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def _filled(text: str, place: str, values: list[ast.expr]) -> str:
    """A text whose places are filled in turn."""
    left = iter(values)
    return re.sub(place, lambda _: _known(next(left, ast.Name("_"))), text)


def _is_device(text: str, device: str) -> bool:
    return re.fullmatch(rf"{device}(?::[\d\0]*|\0)?", text) is not None


def _first_piece(node: ast.expr) -> ast.expr:
    """The leftmost piece of what is put together."""
    while True:
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return node


def _calls(node: ast.AST) -> bool:
    """Whether something would not be called any more if `node` were not there."""
    return any(isinstance(n, ast.Call | ast.Await | ast.NamedExpr) for n in ast.walk(node))


def _set_to(body: list[ast.stmt], value: bool) -> str:
    """The name that a block of one statement sets to True or False."""
    if len(body) != 1 or not isinstance(body[0], ast.Assign):
        return ""
    stmt = body[0]
    target = stmt.targets[0]
    given = stmt.value.value if isinstance(stmt.value, ast.Constant) else None
    return target.id if given is value and isinstance(target, ast.Name) else ""


def _import_line(api: str, name: str) -> str:
    """`import torch`, `import torch.nn as nn`, `from torch.amp import autocast`."""
    where, _, last = api.rpartition(".")
    if not where or not name:
        return f"import {api}" + (f" as {name}" if name and name != api else "")
    return f"from {where} import {last}" + (f" as {name}" if name != last else "")


def _names_cuda(module: Module, joined: branches.Joined) -> ast.AST | None:
    """A place that tells CUDA from other devices: "cuda" as a string, a question. Those in branches
    that were joined are none.
    """
    for constant in module.names.all(ast.Constant):
        value = constant.value
        if joined.holds(module.source.start(constant)):
            continue
        names_it = isinstance(value, str) and re.fullmatch(r"cuda(?::.*)?|nccl", value)
        if names_it and not isinstance(constant.up, ast.Expr):  # type: ignore[attr-defined]
            return constant
    for node in module.names.all(ast.Attribute):
        asked = node.attr == "is_cuda" or module.resolve(node) == "torch.cuda.is_available"
        if asked and not joined.holds(module.source.start(node)):
            return node
    return None


def _names_others(module: Module, own: set[str]) -> bool:
    """Whether a module names devices of other vendors too."""
    others = vendors.DEVICES - own - {"xla", "tpu"}
    if "xpu" in module.compared_words:  # torch's own, which the module tells from its own
        return True
    strings = {n.value for n in module.names.all(ast.Constant) if isinstance(n.value, str)}
    return bool({s.partition(":")[0] for s in strings} & others) or any(
        n.attr in others and module.resolve(n.value) == "torch"
        for n in module.names.all(ast.Attribute)
    )


def read(module: Module, systems: list[System], stay: frozenset[int]) -> Reading:
    """The first step on a module. `stay`: the places that the rules left before, which are not
    written in CUDA's names again.
    """
    reader = _Reader(module, systems, stay)
    reading = reader.read()
    if not reader.cuda:
        return reading
    joined = branches.joined(module, reading.pieces, stay)
    own = reader.redirected() or all(not s.device for s in systems)  # MindTorch says "cuda" itself
    mixed = None if own else _names_cuda(module, joined)
    several = _names_others(module, reader.devices) or len(reader.devices) > 1
    among = mixed is not None or several or _serves_several(module) or _only_asks(module, reader)
    if not reader.strong and among:
        return Reading()  # a word among others
    if mixed is None and not several:
        reading.pieces, reading.kept_tests = joined.pieces, joined.tests
        for node in joined.nodes:
            reader.say("CW174", node, "changed", "the branches of several devices are one",
                       "They do the same, once torch.accelerator is asked.")  # fmt: skip
        return reading
    first = next((n for n in module.imports() if reader.brings(n)), mixed or module.tree.body[0])
    reader.out = Reading(by_vendor=True)
    reader.say("CW174", first, "portable", "the module has a part for each vendor",
               "Leave it, or write one part that asks torch.accelerator.")  # fmt: skip
    return reader.out


def _only_asks(module: Module, reader: _Reader) -> bool:
    """Whether a system's name stands only in lists that a device is looked for in, in a module that
    makes nothing of it: `if self.torch_device in ["mlu"]`, where the device is any; or where it is
    compared beside others' names: `is_mps = d.type == "mps"`, `is_npu = d.type == "npu"`.
    """
    found = [
        n
        for n in module.names.all(ast.Constant)
        if isinstance(n.value, str) and n.value.partition(":")[0] in reader.devices
    ]
    homes = [list(islice((up for _, up in ancestors(n)), 2)) for n in found]
    if not found or len(found) != len(reader.out.pieces):
        return False
    if all(isinstance(home[0], ast.Compare) for home in homes):  # beside others' names
        others = {"mps", "xpu", "cuda"} - set(reader.devices)
        return not module.compared_words.isdisjoint(others)
    return all(
        isinstance(home[0], ast.List | ast.Tuple | ast.Set) and isinstance(home[1], ast.Compare)
        for home in homes
    )


_ASKED = re.compile(rf"is_(?:torch_)?(?:{'|'.join(sorted(vendors.DEVICES))}|mps|xpu)_available")


def _serves_several(module: Module) -> bool:
    """Whether a module chooses for itself among devices: it asks torch.accelerator, calls torch's
    own ones, or asks a library which is there, as `is_npu_available()`.
    """
    for node in module.names.all(ast.Attribute):
        if module.resolve(node) in ("torch.accelerator", "torch.xpu", "torch.mps"):
            return True
    return any(_ASKED.fullmatch(n.id) for n in module.names.all(ast.Name))
