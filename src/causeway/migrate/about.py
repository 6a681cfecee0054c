"""The parts of a module that are about CUDA itself, which a converted name would make untrue.

A check of the environment shows what torch says of CUDA, a branch says "CUDA available", a test
compares with "cuda:0", a function asks NVIDIA's driver. Rules look at single places and cannot tell
these from a training script. So what is about CUDA is weighed here against what moves tensors: for
each branch behind a question, each function, each class of tests, and the module. A part stays or
goes as a whole. Statistics of memory, waiting and seeds weigh little: they are in both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from causeway.migrate import flow, vendors
from causeway.migrate.names import FUNCTIONS, Names, all_arguments, ancestors, called

_OUTWEIGHS = 4  # times that what is about CUDA must weigh what moves
_STRONG = 2  # what is about CUDA and nothing else; an answer that is shown as CUDA's weighs 1
_TRAINS = 8  # a step of training
_DECIDES = 1000  # a device by which functions move tensors
_WHOLE = 6  # the least that makes a module one that is about CUDA
_DEEP = 3  # names that an answer goes through before it is shown

# Names that are about what torch was built with, about NVIDIA's driver and about kernels.
_OWN = re.compile(
    r"torch\.(?:version\.(?:cuda|hip)|backends\.cudnn\.version|cuda\.(?:nccl\.version|get_arch_list"
    r"|get_gencode_flags)|utils\.(?:cpp_extension|collect_env)(?:\..*)?|ops\.aten\._\w+)\Z"
    rf"|(?:{'|'.join(map(re.escape, sorted(vendors.packages('own'))))})(?:\.|\Z)"
)
# The same as a program names them without an import, or in words.
_WORDS = re.compile(
    r"\bnvidia-smi\b|\bnvcc\b|\bCUDA_(?:HOME|PATH)\b|\bdriver version\b|\bNVIDIA drivers?\b"
)
_NAMED = re.compile(r"CTRANSLATE2|(?:^|_)nvidia_smi|(?:^|_)nvcc|(?:^|_)CUDA_HOME$", re.I)
# Kernels that a branch takes: what it imports is named after them.
_KERNELS = re.compile(r"triton|(?:^|[._])cuda(?:_\w*)?kernels?\b", re.I)
_TRAINING = frozenset({
    "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed.init_process_group", "torch.utils.data.DataLoader",
})  # fmt: skip
# Answers of torch.cuda that programs show.
_ANSWERS = frozenset({
    "is_available", "device_count", "get_device_name", "get_device_properties",
    "get_device_capability", "is_bf16_supported",
})  # fmt: skip
# What is as much in training as in a report, and weighs little.
_BOTH = re.compile(
    r"torch\.cuda\.(?:memory\w*|max_memory\w*|mem_get_info|reset_\w+|empty_cache|synchronize|Event"
    r"|ipc_collect|\w*seed\w*|is_initialized|init|utilization|temperature"
    r"|current_device|OutOfMemoryError|is_current_stream_capturing|nvtx\..*)\Z"
)
_DEVICE = re.compile(r"cuda(?::.*)?", re.S)
_INDEXED = re.compile(r"cuda:\d+")
_CUDA = re.compile(r"cuda", re.I)
_SHOWS = re.compile(r"print|log|info|debug|warn|write|echo|message|append|\bok\b|status", re.I)
_SAYS = re.compile(
    r"cuda|gpu|vram|version|driver|capability|supported|device_?(?:name|count)", re.I
)
# Calls whose result is an answer as much as what they are given.
_PLAIN = frozenset({
    "bool", "int", "str", "float", "round", "range", "len", "list", "getattr", "hasattr",
})  # fmt: skip
_ADDS = ("append", "add", "extend")
_DEVICES = re.compile(r"device|gpu|cuda|accelerator", re.I)
_PLACES = frozenset({"device", "device_map", "map_location", "device_ids"})
_MOCKED = re.compile(r"(?:mock|fake|patch)\w*cuda|cuda\w*(?:mock|fake|patch)")
_TEST = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test|conftest)\.py$")


@dataclass
class _Weight:
    about: int = 0
    moves: int = 0
    both: int = 0
    what: str = ""  # the first thing that is about CUDA

    @property
    def stays(self) -> bool:
        """Whether a part with this weight is about CUDA itself."""
        return self.about > 0 and self.about >= _OUTWEIGHS * self.moves + self.both


class About:
    """Says what at a node is about CUDA itself: `at(node)`, "" where nothing is."""

    def __init__(
        self, names: Names, resolve: Callable[[ast.AST], str], text: str, path: str = ""
    ) -> None:
        self._names, self._resolve = names, resolve
        self._parts: dict[int, str] = {}
        self._whole = ""
        if not _CUDA.search(text):
            return
        self._weights: dict[int, _Weight] = {}
        self._questions: dict[int, bool] = {}
        self._all = _Weight()
        self._weigh()
        for key, weight in self._weights.items():
            if weight.stays:
                self._parts[key] = weight.what
        if self._all.stays and self._all.about >= _WHOLE:
            self._whole = self._all.what
        if _TEST.search(path):
            self._find_tests()
        self._find_kernels()

    def at(self, node: ast.AST) -> str:
        """What makes the part of the module that a node is in one that is about CUDA itself."""
        if self._whole or not self._parts:
            return self._whole
        top: ast.AST | None = node
        outside = True  # of functions and classes
        while top is not None and not isinstance(top, ast.Module):
            if id(top) in self._parts:
                return self._parts[id(top)]
            up = getattr(top, "up", None)
            if isinstance(up, FUNCTIONS) and top not in up.body and not _is_test(up):
                up = getattr(up, "up", None)  # decorators and defaults belong to what is around
            outside = outside and not isinstance(top, (*FUNCTIONS, ast.ClassDef))
            top = up
        return self._parts.get(id(self._names.tree), "") if outside else ""

    # -- the scales

    def _weigh(self) -> None:
        for kind in (ast.Attribute, ast.Name):
            for node in self._names.all(kind):
                up = node.up  # type: ignore[attr-defined]
                inside = isinstance(up, ast.Attribute) and up.value is node
                loaded = isinstance(node.ctx, ast.Load)  # type: ignore[attr-defined]
                if loaded and not (inside and self._resolve(up)):
                    self._weigh_name(node)
        for constant in self._names.all(ast.Constant):
            if isinstance(constant.value, str):
                self._weigh_text(constant, constant.value)
        for call in self._names.all(ast.Call):
            self._weigh_call(call)
        for stmt in self._names.all(ast.Assign):
            self._weigh_setting(stmt)
        for returned in self._names.all(ast.Return):
            value = getattr(returned.value, "value", None)
            if isinstance(value, bool) and self._behind_question(returned, denied=False):
                self._add(returned, moves=1)

    def _weigh_name(self, node: ast.AST) -> None:
        api = self._resolve(node)
        if not api:
            if _NAMED.search(getattr(node, "id", getattr(node, "attr", ""))):
                self._add(node, about=_STRONG, what=getattr(node, "id", getattr(node, "attr", "")))
            return
        if isinstance(node, ast.Name) and api.startswith("torch.cuda."):
            self._add(node, moves=_TRAINS)  # one import says what it means in all of the module
        elif _OWN.match(api):
            self._add(node, about=_STRONG, what=api)
        elif _BOTH.match(api):
            self._add(node, both=1)
        elif api.startswith("torch.cuda."):
            last = api.removeprefix("torch.cuda.").partition(".")[0]
            call = node.up  # type: ignore[attr-defined]
            asked = isinstance(call, ast.Call) and call.func is node
            shown = self._shown(call) if last in _ANSWERS and asked else "moves"
            if shown == "moves":
                self._add(node, moves=1)
            elif shown == "cuda":
                self._add(node, about=1, what=api)
        elif api in _TRAINING:
            self._add(node, moves=1)

    def _weigh_text(self, node: ast.Constant, text: str) -> None:
        up: ast.AST = node.up  # type: ignore[attr-defined]
        if isinstance(up, ast.Expr):  # a docstring
            return
        if found := _WORDS.search(text):
            self._add(node, about=_STRONG, what=found[0])
        keyed = isinstance(up, ast.Dict) and node in up.keys
        keyed = keyed or getattr(getattr(up, "func", None), "id", "") in ("getattr", "hasattr")
        among = isinstance(up, ast.List | ast.Tuple | ast.Set)
        around: ast.AST = up.up if among else up  # type: ignore[attr-defined]
        compared = isinstance(around, ast.Compare) or isinstance(up, ast.Subscript)
        if _DEVICE.fullmatch(text) and _listed_as_word(node):
            self._add(node, about=_STRONG, what=f'"{text}" as a word of the program')
        elif _DEVICE.fullmatch(text) and self._listed_and_shown(node):
            return
        elif _DEVICE.fullmatch(text) and " " not in text and not keyed and not compared:
            self._add(node, moves=1)
            if self._named_for_others(node):  # it stays with those alone, where the module does
                self._weights.setdefault(id(self._names.tree), _Weight()).moves += _DECIDES

    def _listed_and_shown(self, node: ast.AST) -> bool:
        """Whether it goes to a list that is shown: `names.append(f"cuda:{i}")`."""
        shown = node.up if isinstance(node.up, ast.JoinedStr) else node  # type: ignore[attr-defined]
        call = shown.up  # type: ignore[attr-defined]
        func = call.func if isinstance(call, ast.Call) and call.args == [shown] else None
        return (
            isinstance(func, ast.Attribute)
            and func.attr in _ADDS
            and isinstance(func.value, ast.Name)
            and self._kept([func.value], 0) != "moves"
        )

    def _named_for_others(self, node: ast.AST) -> bool:
        """Whether a device gets a name outside of functions by which they move tensors."""
        stmt = next((up for _, up in ancestors(node) if isinstance(up, ast.stmt)), None)
        targets = stmt.targets if isinstance(stmt, ast.Assign) else []
        return any(
            any(isinstance(up, FUNCTIONS) for _, up in ancestors(load))
            and self._shown(load) == "moves"
            for target in targets
            if isinstance(target, ast.Name)
            for load in flow.loads(self._names, target)
        )

    def _weigh_call(self, call: ast.Call) -> None:
        name = getattr(call.func, "attr", "")
        api = self._resolve(call.func)
        if name == "backward":
            self._add(call, moves=_TRAINS)
        elif (
            (name == "cuda" and not api)
            or (name == "to" and self._is_device(call))
            or (api == "torch.device" and not _constant(call))
            or any(
                k.arg in _PLACES and not isinstance(k.value, ast.Constant) for k in call.keywords
            )
        ):
            self._add(call, moves=1)

    @staticmethod
    def _is_device(call: ast.Call) -> bool:
        given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "device")]
        named = (getattr(n, "id", getattr(n, "attr", "")) for n in given)
        return any(_DEVICES.search(name) for name in named)

    def _weigh_setting(self, stmt: ast.Assign) -> None:
        """`args.cuda = True`, behind a question, says what the rest of the program does."""
        if not isinstance(stmt.value, ast.Constant | ast.Name) or not self._behind_question(stmt):
            return
        for target in stmt.targets:
            if isinstance(target, ast.Attribute):
                moves = not self._resolve(target).startswith("torch.backends.")
            else:
                moves = isinstance(target, ast.Name) and self._used_elsewhere(target, stmt)
            if moves:
                self._add(stmt, moves=1)

    def _used_elsewhere(self, target: ast.Name, stmt: ast.stmt) -> bool:
        around = next(up for _, up in ancestors(stmt) if isinstance(up, ast.If))
        return any(
            not any(up is around for _, up in ancestors(load)) and self._shown(load) == "moves"
            for load in flow.loads(self._names, target)
        )

    def _behind_question(self, node: ast.AST, *, denied: bool = True) -> bool:
        """Whether a question decides on a node; `denied`: also one for there being no CUDA."""
        return any(
            isinstance(up, ast.If) and child is not up.test and self._asks(up.test)
            and (denied or not isinstance(up.test, ast.UnaryOp))
            for child, up in ancestors(node)
        )  # fmt: skip

    def _add(
        self, node: ast.AST, about: int = 0, moves: int = 0, what: str = "", both: int = 0
    ) -> None:
        weights = [self._all]
        for child, up in ancestors(node):
            region = isinstance(up, FUNCTIONS) and child in up.body
            if region or (isinstance(up, ast.If) and self._chooses(up)):
                weights.append(self._weights.setdefault(id(up), _Weight()))
        homes = (*FUNCTIONS, ast.ClassDef)
        if not any(isinstance(up, homes) for _, up in ancestors(node)):
            weights.append(self._weights.setdefault(id(self._names.tree), _Weight()))
        for weight in weights:
            weight.about += about
            weight.moves += moves
            weight.both += both
            weight.what = weight.what or what

    # -- questions and answers

    def _chooses(self, branch: ast.If) -> bool:
        """Whether a branch is for CUDA, or for what is for CUDA alone. One that leaves decides on
        what follows too, so that it goes with its function.
        """
        known = self._questions.get(id(branch))
        if known is None:
            leaves = isinstance(branch.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
            known = (not leaves and self._asks(branch.test)) or any(
                isinstance(n, ast.Name | ast.Attribute)
                and _NAMED.search(getattr(n, "id", getattr(n, "attr", ""))) is not None
                for n in ast.walk(branch.test)
            )
            self._questions[id(branch)] = known
        return known

    def _asks(self, test: ast.expr) -> bool:
        """Whether a condition asks for CUDA, by itself or by a name for an answer."""
        return any(
            (isinstance(n, ast.Constant) and n.value == "cuda")
            or (isinstance(n, ast.Attribute) and n.attr == "is_cuda")
            or (isinstance(n, ast.Attribute | ast.Name)
                and self._resolve(n).startswith(("torch.cuda.is_", "torch.cuda.device_count")))
            or (isinstance(n, ast.Name) and self._answer_of(n))
            for n in ast.walk(test)
        )  # fmt: skip

    def _answer_of(self, name: ast.Name) -> bool:
        return any(
            isinstance(b.value, ast.Call)
            and self._resolve(b.value.func).startswith("torch.cuda.is_available")
            for b in self._names.bindings(name)
        )

    def _shown(self, node: ast.AST, depth: int = 0) -> str:
        """What becomes of an answer: "cuda", it is shown as CUDA's; "", it is shown, or asked for a
        branch; "moves", it chooses what the program does.
        """
        named = False  # by a text that the answer chooses: "CUDA" if there else "CPU"
        for child, up in ancestors(node):
            if isinstance(up, ast.JoinedStr):
                return "cuda" if named or _says_cuda(up) or self._with_text(up) else ""
            if isinstance(up, ast.If) and up.test is child:
                return ""
            if isinstance(up, ast.Call) and child is not up.func:
                name = called(up)
                if name == "format" or _SHOWS.search(name):
                    return "cuda" if named or self._with_text(child) else ""
                if name not in _PLAIN:
                    label = _label(up, child)
                    return "moves" if label is None else _of_key(label)
            elif isinstance(up, ast.Dict):
                key = up.keys[up.values.index(child)] if child in up.values else None
                return _of_key(key, _holder(up))
            elif isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mod) and child is up.right:
                return "cuda" if _says_cuda(up.left) else ""
            elif isinstance(up, ast.IfExp) and up.test is child:
                said = [str(n.value) for n in ast.walk(up) if isinstance(n, ast.Constant)]
                if any(map(_DEVICE.fullmatch, said)):
                    return "moves"
                named = named or any(map(_CUDA.search, said))
            elif isinstance(up, ast.Assign | ast.AnnAssign) and child is up.value:
                return self._kept(up.targets if isinstance(up, ast.Assign) else [up.target], depth)
            elif isinstance(up, ast.For) and child is up.iter:
                return ""
            elif isinstance(up, ast.stmt | ast.keyword | ast.Compare | ast.BoolOp):
                test = isinstance(up, ast.Compare | ast.BoolOp)
                if not test:
                    return "moves"
        return "moves"

    def _kept(self, targets: Sequence[ast.expr], depth: int) -> str:
        """The same of an answer that is kept by a name or a key."""
        if len(targets) != 1 or depth == _DEEP:
            return "moves"
        target = targets[0]
        if isinstance(target, ast.Subscript):
            return _of_key(target.slice)
        if not isinstance(target, ast.Name):
            return "moves"
        found = {
            self._shown(load, depth + 1)
            for load in flow.loads(self._names, target)
            if getattr(load.up, "attr", "") not in _ADDS  # type: ignore[attr-defined]
        }
        return "moves" if "moves" in found else "cuda" if "cuda" in found else ""

    @staticmethod
    def _with_text(shown: ast.AST) -> bool:
        """Whether a text beside what is shown says CUDA: another argument of the call."""
        call = next((up for _, up in ancestors(shown) if isinstance(up, ast.Call)), None)
        parts = [] if call is None else [*call.args, *(k.value for k in call.keywords)]
        return any(
            isinstance(part, ast.Constant | ast.JoinedStr) and _says_cuda(part) for part in parts
        ) or (call is not None and _says_cuda(getattr(call.func, "value", None)))

    # -- what is one thing whatever else is in it

    def _find_tests(self) -> None:
        """Tests that compare with a name of CUDA's, which the program tested does not give on other
        devices, and those with a stand-in for CUDA.
        """
        for kind in FUNCTIONS:
            for node in self._names.all(kind):
                assert isinstance(node, FUNCTIONS)
                if any(_MOCKED.search(arg.arg) for arg in all_arguments(node.args)):
                    self._parts[id(node)] = "a stand-in for CUDA"
                elif expected := next(_expected(node), ""):
                    home = next(
                        (up for _, up in ancestors(node) if isinstance(up, ast.ClassDef)), None
                    )
                    shares = home is not None and any(
                        getattr(stmt, "name", "") in ("setUp", "setup_method") for stmt in home.body
                    )
                    self._parts[id(home if shares else node)] = f'a comparison with "{expected}"'

    def _find_kernels(self) -> None:
        """Branches that take a kernel of Triton's or CUDA's for tensors of CUDA's."""
        for branch in self._names.all(ast.If):
            if not any(self._asks_tensor(n) for n in ast.walk(branch.test)):
                named = getattr(branch.test, "id", "")
                if not (named and self._answers_tensor(branch.test)):
                    continue
            for part in branch.body:
                for inner in ast.walk(part):
                    if isinstance(inner, ast.ImportFrom) and _KERNELS.search(inner.module or ""):
                        self._parts[id(branch)] = f"kernels of {inner.module}"
                        for value in self._set_to(branch.test):
                            self._parts[id(value)] = f"kernels of {inner.module}"

    @staticmethod
    def _asks_tensor(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "is_cuda"

    def _set_to(self, test: ast.expr) -> list[ast.expr]:
        bound = self._names.bindings(test) if isinstance(test, ast.Name) else []
        return [b.value for b in bound if b.value is not None]

    def _answers_tensor(self, test: ast.expr) -> bool:
        return any(self._asks_tensor(n) for value in self._set_to(test) for n in ast.walk(value))


def _expected(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The names of CUDA's with an index that a test expects from what it tests."""
    for node in ast.walk(test):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Assert):
            parts = [node.test]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("assert"):
            parts = [*node.args, *(k.value for k in node.keywords)]
        named = [n for part in parts for n in ast.walk(part)]
        if any(isinstance(n, ast.Attribute) and n.attr == "device" for n in named):
            continue  # the device of a tensor, which is converted with it
        for n in named:
            if isinstance(n, ast.Constant) and _INDEXED.fullmatch(str(n.value)):
                yield str(n.value)


def _label(call: ast.Call, shown: ast.AST) -> ast.AST | None:
    """The text before what a call shows, where its own answer is of no use:
    `log.pair("CUDA version", torch.version.cuda)`.
    """
    if not isinstance(call.up, ast.Expr) or shown not in call.args[1:]:  # type: ignore[attr-defined]
        return None
    first = call.args[0]
    return first if isinstance(getattr(first, "value", None), str) else None


def _listed_as_word(node: ast.AST) -> bool:
    """Whether it is added to a list that is none of devices: `found["backends"].append("cuda")`."""
    call = node.up  # type: ignore[attr-defined]
    func = call.func if isinstance(call, ast.Call) else None
    if not isinstance(func, ast.Attribute) or func.attr not in _ADDS:
        return False
    return call.args == [node] and not _DEVICES.search(ast.unparse(func.value))


def _is_test(node: ast.AST) -> bool:
    return getattr(node, "name", "").startswith("test")


def _constant(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant)


def _says_cuda(node: ast.AST | None) -> bool:
    """Whether a text, also one with expressions in it, says CUDA."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    said = (part.value for part in parts if isinstance(part, ast.Constant))
    return any(isinstance(text, str) and _CUDA.search(text) for text in said)


def _holder(shown: ast.Dict) -> ast.AST | None:
    """The key that a dictionary is kept by: `info["cuda"] = {"count": …}`."""
    up = shown.up  # type: ignore[attr-defined]
    target = up.targets[0] if isinstance(up, ast.Assign) else None
    return target.slice if isinstance(target, ast.Subscript) else None


def _of_key(*keys: ast.AST | None) -> str:
    """What an answer that is kept by a key is: its key says CUDA, or at least a GPU."""
    says = " ".join(str(getattr(key, "value", "")) for key in keys)
    return "cuda" if _CUDA.search(says) else "" if _SAYS.search(says) else "moves"
