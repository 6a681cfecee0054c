"""The parts of a module that are for kernels of CUDA alone, whose tensors must stay CUDA's.

What launches a kernel of numba, tests of kernels that Triton compiles or that a name calls CUDA's,
and modules of tests that import an extension which the tree builds for CUDA. Other code around a
kernel of Triton is converted, for Triton serves several devices.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from causeway.migrate import vendors
from causeway.migrate.names import FUNCTIONS, Names, all_arguments, ancestors, called

_CONCERNS = re.compile(r"CuGraph|numba|triton|faiss|requires?_cuda|mark\.\w*cuda|patch")
_CUDAS = re.compile(r"_cuda$|^cuda_\w*kernel|triton")
_CUPY_KERNELS = re.compile(r"RawKernel|RawModule|\bcuda\.(?:compile|function)|memoize|NVRTC")
_LOADS = re.compile(r"\bload_ext\(")
_PRIVATE = re.compile(r"_lazy_call|CUDAGraph|cuda\.graph\b")
_PRIVATES = {
    "torch.cuda._lazy_call": "the start of CUDA",
    "torch.cuda.CUDAGraph": "CUDA graphs",
    "torch.cuda.graph": "CUDA graphs",
}
# By its place: a test_net.py elsewhere evaluates a model.
_TESTS = re.compile(r"(?:^|/)(?:tests?|testing)/(?:.*/)?test_\w+\.py$|(?:^|/)conftest\.py$")
_IN_TESTS = re.compile(r"(?:^|/)tests?/")
# What modules that load a kernel by its name name: an extension of CUDA's, or apex's.
_NAMED = re.compile(r"\w+_cuda|amp_C")
# Packages for CUDA alone, as modules of tests are named after.
_TESTED = re.compile(rf"(?:^|_)(?:{vendors.words('kernels', 'named')})(?:_|\.)")
_SHORT = 4000  # bytes; a longer function does more than to record a graph
# What a test puts a stand-in in place of: torch.cuda's functions, and what moves to CUDA's device.
_REPLACED = re.compile(r"torch\.(?:cuda\b|(?:Tensor|nn\.Module)\.cuda$)")
_MARK = re.compile(r"pytest\.mark\.\w*cuda\w*")


class Kernels:
    """What is for which kernels: `at(node)` says it, "" where nothing is.

    `extensions`: the modules that the tree builds for CUDA, by their qualified names; `packages`:
    those of its packages that load some; `wrappers`: its modules of such kernels;
    `triton`: those, and packages, of kernels of Triton's; `own`: packages that the tree is.
    """

    def __init__(
        self,
        names: Names,
        resolve: Callable[[ast.AST], str],
        text: str,
        extensions: frozenset[str] = frozenset(),
        packages: frozenset[str] = frozenset(),
        path: str = "",
        wrappers: frozenset[str] = frozenset(),
        triton: frozenset[str] = frozenset(),
        own: frozenset[str] = frozenset(),
    ) -> None:
        self._names, self._resolve, self._path, self._text = names, resolve, path, text
        self._whole = ""  # what all of it is for
        self._parts: dict[int, str] = {}  # by id of a function, a class or the module
        self._trials: set[int] = set()  # by id of an `if __name__ == "__main__":`
        self._shared: dict[str, str] = {}  # variables of the module that those parts read
        if "cupy" in text or "cutlass" in text or "cpm_kernels" in text or "cuda.bindings" in text:
            self._whole = self._launches_own(text)
        elif "CUDAExtension" in text and any(
            called(call) == "setup" for call in names.all(ast.Call)
        ):
            self._whole = "a build of kernels"
        built = sorted(name for name in extensions if name.rpartition(".")[2] in text)
        if self._whole:
            return
        loading = sorted(
            name for name in packages
            if name.rpartition(".")[2] in text or name.replace(".", "/") in path
        )  # fmt: skip
        if built and (name := self._cannot_do_without(built)):
            self._whole = f"the extension {name}"
        elif built and self._tests_one_of(built):
            self._whole = f"the extension {built[0]}"
        elif loading and (owner := self._tests_package(loading)):
            self._whole = f"the compiled kernels of {owner}"
        elif triton and (owner := self._tests_package(sorted(triton))):
            self._whole = f"the kernels of {owner}, by Triton"
        elif owner := self._tests_own(own):
            self._whole = f"the kernels of {owner}"
        elif (named := _TESTED.search(path.rpartition("/")[2])) and self._has_tests():
            self._whole = named[0].strip("_.")
        elif self._serves_tests(path, packages):
            self._whole = "tests of compiled kernels"
        elif self._compiles(path, wrappers):
            self._whole = "kernels that are compiled for CUDA beside it"
        elif "_cuda" in text and (name := self._tests_cudas()):
            self._whole = f"the extension {name}"
        else:
            if _LOADS.search(text):
                self._find_trial()
            if _CONCERNS.search(text):
                self._find()
            if _PRIVATE.search(text):
                self._find_private(text)
            if "import_module(" in text:
                self._find_loaders()

    def at(self, node: ast.AST) -> str:
        """The kernels that a node is for."""
        if self._whole:
            return self._whole
        if not self._parts:
            return ""
        parts = [up for _, up in ancestors(node)]
        if owner := next((self._parts[id(up)] for up in parts if id(up) in self._trials), ""):
            return owner
        around = [up for up in parts if isinstance(up, (*FUNCTIONS, ast.ClassDef))]
        if around:
            return next((self._parts[id(up)] for up in around if id(up) in self._parts), "")
        if id(self._names.tree) in self._parts:
            return self._parts[id(self._names.tree)]
        for _, up in ancestors(node):
            if isinstance(up, ast.Assign | ast.AnnAssign):
                targets = up.targets if isinstance(up, ast.Assign) else [up.target]
                set_here = [t.id for t in targets if isinstance(t, ast.Name)]
                return next((self._shared[n] for n in set_here if n in self._shared), "")
        return ""

    def _launches_own(self, text: str) -> str:
        """What a module launches kernels of its own by, which are NVIDIA's: cupy's RawKernel, CuTe;
        "" where it could do without.
        """
        imports: list[ast.Import | ast.ImportFrom] = [
            *self._names.all(ast.Import),
            *self._names.all(ast.ImportFrom),
        ]
        for node in imports:
            if any(isinstance(up, ast.Try) for _, up in ancestors(node)):
                continue
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names] if not node.level else []
            for name in names:
                head = name.partition(".")[0]
                if head == "cupy" and not _CUPY_KERNELS.search(text):
                    continue
                if head in ("cupy", "cutlass", "cpm_kernels") or name.startswith("cuda.bindings"):
                    return f"kernels of {'cuda-python' if head == 'cuda' else head}"
        return ""

    def _cannot_do_without(self, extensions: list[str]) -> str:
        """The extension, named after CUDA, without which a module cannot be imported: nothing of it
        runs on another device. "" where there is none.
        """
        wanted = [name for name in extensions if _CUDAS.search(name.rpartition(".")[2])]
        imports: list[ast.Import | ast.ImportFrom] = [
            *self._names.all(ast.Import),
            *self._names.all(ast.ImportFrom),
        ]
        for node in imports if wanted else ():
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names += [node.module or "", *(f"{node.module}.{name}" for name in names)]
            found = [name for name in wanted if name in names]
            if found and isinstance(node.up, ast.Module):  # type: ignore[union-attr]
                return found[0]
        return ""

    def _tests_one_of(self, extensions: list[str]) -> bool:
        """Whether a module has tests, and imports an extension."""
        brought = self._brought() if self._has_tests() else set()
        return any(b == name or b.startswith(f"{name}.") for b in brought for name in extensions)

    def _tests_package(self, packages: list[str]) -> str:
        """The package whose compiled kernels a module tests, by what it imports; "" for none."""
        brought = self._brought() if self._has_tests() else set()
        for package in packages:
            if any(f"{b}.".startswith(f"{package}.") for b in brought):
                return package
            named = any(package.startswith(f"{b}.") for b in brought)
            if named and re.search(rf"\b{re.escape(package)}\.", self._text):  # import apex
                return package
        return self._beside(packages)

    def _beside(self, packages: Iterable[str]) -> str:
        """The package in whose folder a script compares a kernel with its gradient."""
        if "torch.autograd.gradcheck" not in self._brought():
            return ""
        folder = "." + self._path.rpartition("/")[0].replace("/", ".")
        return next((p for p in packages if folder.endswith(f".{p}")), "")

    def _tests_own(self, own: frozenset[str]) -> str:
        """The package for CUDA alone that the tree is, where a module tests it."""
        tested = own & (vendors.packages("kernels") | vendors.packages("named"))
        if not tested or not (_IN_TESTS.search(self._path) or self._has_tests()):
            return ""
        heads = {name.partition(".")[0] for name in self._brought()}
        return next(iter(sorted(tested & heads)), "")

    def _compiles(self, path: str, wrappers: frozenset[str]) -> bool:
        """Whether a module is for kernels, and there is no way around them: the only other names
        in its `try:` are those of the same kernels.
        """
        return path in wrappers and any(
            base in ("torch.autograd.Function", "torch.autograd.function.Function")
            for node in self._names.all(ast.ClassDef)
            for base in map(self._resolve, node.bases)
        )

    @staticmethod
    def _serves_tests(path: str, packages: frozenset[str]) -> bool:
        """Whether a module has what tests of a package's kernels share: `cluster/testing.py`."""
        folder, _, name = path.rpartition("/")
        return name in ("testing.py", "conftest.py") and folder.replace("/", ".") in packages

    def _tests_cudas(self) -> str:
        """What a module with tests imports that is named after CUDA alone, `import nms_cuda`."""
        found = [
            alias.name for node in self._names.all(ast.Import) for alias in node.names
            if alias.name.endswith("_cuda") and "." not in alias.name
        ]  # fmt: skip
        return found[0] if found and self._has_tests() else ""

    def _find_private(self, text: str) -> None:
        """Functions of what is CUDA's alone: they put a call off until CUDA is started, or record a
        graph of it.
        """
        for kind in (ast.Name, ast.Attribute):
            for node in self._names.all(kind):
                api = self._resolve(node)
                what = _PRIVATES.get(api, "")
                home = next((up for _, up in ancestors(node) if isinstance(up, FUNCTIONS)), None)
                up = node.up  # type: ignore[attr-defined]
                if not what or home is None or not (isinstance(up, ast.Call) and up.func is node):
                    continue
                if api == "torch.cuda._lazy_call":
                    homes = [up for _, up in ancestors(node) if isinstance(up, FUNCTIONS)]
                    home = homes[-1]
                if len(ast.get_source_segment(text, home) or "") < _SHORT:
                    self._parts[id(home)] = what
                    if api == "torch.cuda._lazy_call":
                        self._find_callers(home, what, text)

    def _find_callers(self, function: ast.AST, what: str, text: str) -> None:
        """Who calls a function that starts CUDA, `_set_cuda_rng_state(state)`: its class, for what
        it hands over is CUDA's too.
        """
        for node in self._names.all(ast.Name):
            if node.id != getattr(function, "name", "") or not self._of_module(node):
                continue
            around = [up for _, up in ancestors(node) if isinstance(up, (*FUNCTIONS, ast.ClassDef))]
            classes = [up for up in around if isinstance(up, ast.ClassDef)]
            for home in (classes or around)[-1:]:
                if classes or len(ast.get_source_segment(text, home) or "") < _SHORT:
                    self._parts.setdefault(id(home), what)

    def _find_loaders(self) -> None:
        """Classes that load a kernel of CUDA's by its name: `import_module("fused_adam_cuda")`."""
        for call in self._names.all(ast.Call):
            name = called(call)
            first = getattr(call.args[0], "value", "") if call.args else ""
            if name != "import_module" or not _NAMED.fullmatch(str(first)):
                continue
            home = next((up for _, up in ancestors(call) if isinstance(up, ast.ClassDef)), None)
            if home is not None:
                self._parts[id(home)] = f"the extension {first}"

    def _brought(self) -> set[str]:
        brought = {alias.name for node in self._names.all(ast.Import) for alias in node.names}
        for node in self._names.all(ast.ImportFrom):
            brought |= {f"{node.module}.{alias.name}" for alias in node.names}
        return brought

    def _has_tests(self) -> bool:
        if _TESTS.search(self._path):
            return True
        if "torch.autograd.gradcheck" in self._brought():  # a script that compares a kernel
            return True
        kinds = (*FUNCTIONS, ast.ClassDef)
        return any(_is_test(node) for kind in kinds for node in self._names.all(kind))

    def _find(self) -> None:
        launchers: dict[str, str] = {}  # functions and classes of the module, and whose kernel
        uses = [(node, owner) for node in self._loads() if (owner := self._owner(node))]
        for node, owner in uses:
            self._take(node, owner, launchers)
        changed = True
        while changed:  # who names a launcher launches
            changed = False
            for node in self._names.all(ast.Name):
                if node.id in launchers and self._of_module(node):
                    changed |= self._take(node, launchers[node.id], launchers)
        self._find_marked()
        self._find_patched()
        for node in self._names.all(ast.Name) if self._parts else ():
            if self._of_module(node):
                around = (self._parts[id(up)] for _, up in ancestors(node) if id(up) in self._parts)
                if owner := next(around, ""):
                    self._shared[node.id] = owner

    def _of_module(self, node: ast.Name) -> bool:
        """Whether a name is read here, and bound by the module itself."""
        held = self._names.holder(node.id, node.scope)  # type: ignore[attr-defined]
        return isinstance(node.ctx, ast.Load) and held is self._names.module

    def _loads(self) -> Iterator[ast.Name | ast.Attribute]:
        for kind in (ast.Name, ast.Attribute):
            for node in self._names.all(kind):
                if isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]
                    yield node  # type: ignore[misc]

    def _owner(self, node: ast.Name | ast.Attribute) -> str:
        api = self._resolve(node)
        if api.startswith("numba.cuda."):
            return "numba"
        if api.startswith("triton."):
            return "triton"
        if api.rpartition(".")[2].startswith("CuGraph"):
            return "cugraph"
        return "faiss" if api.startswith("faiss.") and "gpu" in api.lower() else ""

    def _take(self, node: ast.AST, owner: str, launchers: dict[str, str]) -> bool:
        """Note the function around a use of kernels; whether that is news."""
        up = [n for _, n in ancestors(node)]
        homes = [n for n in up if isinstance(n, (*FUNCTIONS, ast.ClassDef))]
        if not homes:
            if owner == "numba" and any(isinstance(n, ast.Call) for n in up):
                self._parts[id(self._names.tree)] = owner
            return False
        inner, outer = homes[0], homes[-1]
        tests = [n for n in homes if _is_test(n)]
        handed = owner != "faiss" or self._faiss_takes_tensors()
        for part in tests if handed or tests else ():
            self._parts.setdefault(id(part), owner)
        if handed and (owner == "faiss" or (owner == "numba" and self._launches(node))):
            self._parts.setdefault(id(inner), owner)
        if outer.name in launchers or owner == "faiss" or self._chooses(outer):
            return False
        launchers[outer.name] = owner
        return True

    def _launches(self, node: ast.AST) -> bool:
        """Whether a use is that of numba itself, or a launch of a kernel by its name."""
        up = node.up  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) or self._resolve(node).startswith("numba."):
            return True
        return isinstance(up, ast.Subscript) and isinstance(up.up, ast.Call)  # type: ignore[attr-defined]

    def _chooses(self, node: ast.AST) -> bool:
        """Whether a function chooses itself between the kernel and other code."""
        return any(
            isinstance(n, ast.Attribute)
            and (n.attr == "is_cuda" or self._resolve(n) == "torch.cuda.is_available")
            for n in ast.walk(node)
        )

    def _faiss_takes_tensors(self) -> bool:
        return any(
            alias.name.startswith("faiss.contrib.torch_utils")
            for node in self._names.all(ast.Import)
            for alias in node.names
        )

    def _find_trial(self) -> None:
        """What a module that loads compiled kernels does with one when it is run itself."""
        for node in self._names.all(ast.If):
            if "__name__" not in ast.dump(node.test):
                continue
            if any(isinstance(n, ast.Attribute) and n.attr == "apply" for n in ast.walk(node)):
                self._parts[id(node)] = "the compiled kernels that the module loads"
                self._trials.add(id(node))

    def _find_marked(self) -> None:
        """Tests with a mark of the program for CUDA, in a module that names kernels of CUDA's."""
        bound = self._names.module.bindings
        if not any(_CUDAS.search(name) for name in bound):
            return
        for kind in (*FUNCTIONS, ast.ClassDef):
            for node in self._names.all(kind):
                for mark in getattr(node, "decorator_list", ()):
                    named = mark.func if isinstance(mark, ast.Call) else mark
                    if _MARK.fullmatch(self._resolve(named)):
                        self._parts[id(node)] = "a kernel of CUDA"

    def _find_patched(self) -> None:
        """Tests for which a decorator or a statement replaces a name of CUDA's: they say what the
        program does with CUDA, `@patch("torch.cuda.is_available", return_value=True)`.
        """
        for call in self._names.all(ast.Call):
            if called(call) not in ("patch", "setattr", "object") or not call.args:
                continue
            first = call.args[0]
            text = first.value if isinstance(first, ast.Constant) else self._resolve(first)
            name = str(text)
            if not _REPLACED.search(name):
                continue
            around = [up for _, up in ancestors(call) if isinstance(up, FUNCTIONS)]
            theirs = name[name.index("torch") :]
            for function in around[-1:]:
                if _is_test(function):
                    self._parts[id(function)] = f"a test that replaces {theirs}"
                elif self._is_fixture(function):
                    self._parts[id(function)] = f"a test's part that replaces {theirs}"
                    self._find_served(function.name, theirs)
        for kind in (*FUNCTIONS, ast.ClassDef):
            for node in self._names.all(kind):
                for mark in getattr(node, "decorator_list", ()):
                    given = mark.args[0] if isinstance(mark, ast.Call) and mark.args else None
                    replaced = given.value if isinstance(given, ast.Constant) else None
                    if isinstance(replaced, str) and replaced.startswith("torch.cuda."):
                        self._parts[id(node)] = f"a test that replaces {replaced}"

    def _is_fixture(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        made = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
        return any(self._resolve(name) == "pytest.fixture" for name in made)

    def _find_served(self, fixture: str, replaced: str) -> None:
        """Tests that a fixture with a stand-in serves: `def test_it(mock_device):`."""
        for kind in FUNCTIONS:
            for node in self._names.all(kind):
                assert isinstance(node, FUNCTIONS)
                if any(arg.arg == fixture for arg in all_arguments(node.args)):
                    self._parts[id(node)] = f"a test that replaces {replaced}"


def _is_test(node: ast.AST) -> bool:
    name = getattr(node, "name", "")
    return name.startswith(("test", "Test")) or name.endswith("Test")
