"""What a tree has of its own by CUDA's names, which one module alone does not show.

Classes with a method `cuda`, modules with a function `cuda`, packages whose modules load a compiled
extension, functions whose answer tensors are put on, and whether the tree tells several vendors'
devices apart. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from causeway.migrate import vendors
from causeway.migrate.source import tree_of

# A method, a function or an import of it; indented or not.
_CUDA = re.compile(
    rb"\bdef[ \t]+(?:%b)[ \t]*\(|\bimport\b[^#]{0,400}\bcuda\b"
    % "|".join(sorted(vendors.METHODS)).encode()
)
# How a module loads what was compiled for it.
_LOADS = re.compile(
    rb"\bload_ext\(|\btorch\.(?:ops|classes)\.load_library\("
    rb"|^[ \t]*(?:from|import)[ \t]+(?!torch\b)[\w. ,]*\b_C\b|^from[ \t]+\.*_ext\b",
    re.M,
)
# How one compiles kernels of CUDA's when it is imported, and how another takes those.
_COMPILES = re.compile(rb"^\w+[ \t]*=[ \t]*(?:[\w.]+\.)?load\((?=[^#]*\.cu\b)", re.M)
_TAKES = re.compile(rb"^[ \t]*from[ \t]+\.(\w+)[ \t]+import\b", re.M)
_COMPILED = re.compile(
    rb"^[ \t]*from[ \t]+\.+[ \t]+import[ \t]+[\w ,]*?\b(\w+_(?:cuda|ext))\b", re.M
)
_TYPES = re.compile(
    rb"^[ \t]*from[ \t]+(?!torch\b)[\w.]+[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)", re.M
)
_TYPE = re.compile(rb"\b\w*Tensor\b|\bd?type\b")
# Folders of vendors' code, and how many of them show that a tree has one for each.
_FOLDERS = {"cuda", "ascend", *vendors.TORCHS, *vendors.ASKED, *vendors.ARCHITECTURES}
_SEVERAL = 3
# A module that defines kernels of Triton's, and how many of a folder's modules show that all are
# about such kernels.
_TRITON = re.compile(rb"^[ \t]*@(?:triton\.)?(?:jit|autotune|heuristics)\b", re.M)
_MOST = 3
# A module of one vendor's beside those of others: cuda_accelerator.py and npu_accelerator.py.
_MODULE = re.compile(rf"({'|'.join(('cuda', *vendors.TORCHS, *vendors.ASKED))})_(\w+)")
# k2's automata and losses, which are on the CPU or on CUDA's device, as are the tensors for them.
_K2 = re.compile(rb"^(?:from|import)[ \t]+k2\b", re.M)
_CTRANSLATE2 = re.compile(
    rb"^(?:from|import)[ \t]+(?:%b)\b" % vendors.words("ctranslate2").encode(), re.M
)
# Attributes that are called as tensor types are: self.Tensor, opt.FloatTensor.
_ATTRIBUTES = re.compile(rb"\b(?!torch\b|th\b|cuda\b)\w+\.(\w*Tensor)\b")
LEGACY = re.compile(rb"\b(?:torch|th)\.Tensor\(")
_ASKED = "|".join(vendors.ASKED).encode()
# Vendors of which a tree has a name or a question: IS_NPU, is_torch_mlu_available(), IS_NVIDIA.
_VENDOR = re.compile(
    rb"\bIS_(%b|%b)(?:_AVAILABLE)?\b"
    rb"|\bdef[ \t]+is_(?:torch_)?(%b)_available\b"
    rb"|\bis_torch_(cuda|xpu|%b)_available\b"
    % ("|".join(vendors.MAKERS).encode(), _ASKED.upper(), _ASKED, _ASKED)
)
# A function that names the device that is there, which may be one of several vendors'.
_GIVES = re.compile(rb"""^[ \t]*return[ \t]+["'](cuda|%b)["'][ \t]*(?:#.*)?$""" % _ASKED, re.M)
_TORCH = re.compile(rb"^[ \t]+(?:import|from)[ \t]+torch\b", re.M)
_MISSING = re.compile(rb"[ \t]*except\b.*(?:Import|ModuleNotFound)Error")
_ENDS = re.compile(rb"[ \t]*(?:raise|(?:sys\.)?exit)\b")
_AROUND = 3, 10  # lines of a `try:` before the import, and behind it
# A function whose answer a module puts tensors on: `model.to(pick())`, `device = utils.pick()`.
_PUTS = re.compile(
    rb"(?:\.to\(|\btorch\.device\(|\b\w*device[ \t]*=|\bmap_location[ \t]*=)"
    rb"[ \t]*(?:\w+\.)*(\w+)\(\)"
)
# These come with torch: a name of one alone tells no vendor's device from another's.
_TORCHS = {b"cuda", b"xpu"}


@dataclass(frozen=True)
class Own:
    """See above. `classes` and `without_to` are names of classes with a `cuda`, and of those that
    have no `.to()`; `functions` the last names of modules; `kernels` dotted names of packages;
    `imported` what modules import of a tensor type's name, `from utils import FloatTensor`;
    `shared_types` attributes of such a name that several modules use, `self.Tensor`;
    `triton` dotted names of modules with kernels of Triton's, and of packages of little else;
    `ctranslate2`: a package of the tree needs CTranslate2, which has CUDA's devices alone;
    `legacy_tensors`: it makes some by `torch.Tensor(…)`, which follows the default type alone;
    `vendor_folders` those of CUDA's code beside folders of other vendors, `backends/cuda`;
    `wrappers` modules of kernels that a module beside them compiles for CUDA.
    """

    classes: frozenset[str] = frozenset()
    without_to: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()
    imported: frozenset[str] = frozenset()
    shared_types: frozenset[str] = frozenset()
    triton: frozenset[str] = frozenset()
    ctranslate2: bool = False
    legacy_tensors: bool = False
    several_vendors: bool = False
    vendor_folders: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    beside_k2: frozenset[str] = frozenset()  # folders with a module that imports k2
    of_vendors: frozenset[str] = frozenset()  # modules that each are for one vendor's device
    device_functions: frozenset[str] = frozenset()  # last names of those whose answer is a device
    torch_optional: bool = False  # a module goes on where torch is not installed


NOTHING = Own()  # of a module that is read alone


def find(paths: Iterable[Path], root: Path, extensions: frozenset[str] = frozenset()) -> Own:
    """What the modules of a tree have of their own. `extensions`: what it builds for CUDA."""
    reading = _Reading(root, _imports_one_of(extensions))
    for path in paths:
        reading.place(path)
        reading.definitions(path)
        with suppress(OSError):
            data = path.read_bytes()
            reading.kernels_of(path, data)
            reading.types(data)
            reading.vendors_of(path, data)
            reading.libraries(path, data)
            reading.functions |= {n.decode() for n in _PUTS.findall(data)}
            if not reading.torch_optional and _does_without_torch(data):
                reading.torch_optional = True
    return reading.found()


@dataclass
class _Reading:
    """What was read so far, by theme; see Own."""

    root: Path
    built: re.Pattern[bytes] | None  # imports an extension that the tree builds
    classes: set[str] = field(default_factory=set)
    without_to: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    wrappers: set[str] = field(default_factory=set)
    triton: dict[Path, list[str]] = field(default_factory=dict)  # by folder: its modules of kernels
    number: Counter[Path] = field(default_factory=Counter)  # of the modules of a folder
    imported: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    legacy: bool = False
    vendors: set[bytes] = field(default_factory=set)
    folders: dict[Path, set[str]] = field(default_factory=dict)
    by_rest: dict[tuple[Path, str], list[Path]] = field(default_factory=dict)
    ctranslate2: bool = False
    k2: set[Path] = field(default_factory=set)
    torch_optional: bool = False

    def place(self, path: Path) -> None:
        """What the place of a module says."""
        self.number[path.parent] += path.name != "__init__.py"
        if (vendor := path.parent.name) in _FOLDERS:
            self.folders.setdefault(path.parent.parent, set()).add(vendor)

    def definitions(self, path: Path) -> None:
        """Classes with a method `cuda`, and modules with such a function."""
        tree = tree_of(path, _CUDA.search)
        if tree is None:
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = {getattr(stmt, "name", "") for stmt in node.body}
                if methods & vendors.METHODS:
                    self.classes.add(node.name)
                    if "to" not in methods and _is_bare(node):
                        self.without_to.add(node.name)
        if any(map(_binds_cuda, tree.body)):
            self.modules.add(path.parent.name if path.name == "__init__.py" else path.stem)

    def kernels_of(self, path: Path, data: bytes) -> None:
        """Modules that load compiled kernels, wrap them, or define some of Triton's."""
        if b"triton" in data and _TRITON.search(data):
            module = ".".join(filter(None, (_package(path, self.root), path.stem)))
            self.triton.setdefault(path.parent, []).append(module)
        loads = _loads(path, data) or (self.built is not None and bool(self.built.search(data)))
        compiled = _COMPILED.search(data)
        needs = compiled is not None and _cannot_do_without(path, compiled)
        if needs or any(_compiles(path.parent / f"{n.decode()}.py") for n in _TAKES.findall(data)):
            self.wrappers |= self._names([path])
            loads = True
        if loads and (package := _package(path, self.root)):
            self.kernels.add(package)

    def types(self, data: bytes) -> None:
        """Names and attributes that are called as tensor types are."""
        self.imported |= {n.decode() for m in _TYPES.finditer(data) for n in _TYPE.findall(m[1])}
        here = {n.decode() for n in _ATTRIBUTES.findall(data)}
        self.shared |= here & self.attributes
        self.attributes |= here
        self.legacy = self.legacy or LEGACY.search(data) is not None

    def vendors_of(self, path: Path, data: bytes) -> None:
        """Vendors that the tree asks for, and modules that each are for one."""
        # A program may be called after the device that it was tried on.
        if (of_one := _MODULE.fullmatch(path.stem)) and b"__main__" not in data:
            self.by_rest.setdefault((path.parent, of_one[2]), []).append(path)
        self.vendors |= {(m[1] or m[2] or m[3]).lower() for m in _VENDOR.finditer(data)}
        given = {name.lower() for name in _GIVES.findall(data)}
        self.vendors |= given if len(given) > 1 else set()

    def libraries(self, path: Path, data: bytes) -> None:
        """Modules that need a library for the CPU and for CUDA's devices alone."""
        if _CTRANSLATE2.search(data) and _package(path, self.root):
            self.ctranslate2 = True
        if _K2.search(data):
            self.k2.add(path.parent)

    def found(self) -> Own:
        """What the tree has."""
        triton = {m for found in self.triton.values() for m in found}
        for folder, found in self.triton.items():
            package = _package(folder / "a.py", self.root)
            if package and len(found) * _MOST >= self.number[folder]:
                triton.add(package)
        return Own(
            classes=frozenset(self.classes),
            without_to=frozenset(self.without_to),
            functions=frozenset(self.modules),
            kernels=frozenset(self.kernels),
            imported=frozenset(self.imported),
            shared_types=frozenset(self.shared),
            triton=frozenset(triton),
            ctranslate2=self.ctranslate2,
            legacy_tensors=self.legacy,
            several_vendors=len(self.vendors) > 1 and bool(self.vendors - _TORCHS),
            vendor_folders=self._names(
                home / "cuda" for home, names in self.folders.items()
                if "cuda" in names and len(names) >= _SEVERAL
            ),
            wrappers=frozenset(self.wrappers),
            beside_k2=self._names(self.k2),
            of_vendors=self._names(
                path for found in self.by_rest.values()
                if len(found) > 1 and any(path.stem.startswith("cuda_") for path in found)
                for path in found
            ),
            device_functions=frozenset(self.functions),
            torch_optional=self.torch_optional,
        )  # fmt: skip

    def _names(self, paths: Iterable[Path]) -> frozenset[str]:
        """Paths as they are named from the root, less those that lead out of it."""
        top = self.root.resolve()
        real = (path.resolve() for path in paths)
        return frozenset(p.relative_to(top).as_posix() for p in real if p.is_relative_to(top))


def _does_without_torch(data: bytes) -> bool:
    """Whether a module goes on where torch is not installed: `try: import torch`, and a handler
    that does not end the program.
    """
    before, behind = _AROUND
    for found in _TORCH.finditer(data):
        above = data[: found.start()].rsplit(b"\n", before + 1)[-before - 1 :]
        if not any(line.strip() == b"try:" for line in above):
            continue
        below = data[found.start() :].split(b"\n", behind)[1:behind]
        for line, inside in pairwise(below):
            if _MISSING.match(line):
                if not _ENDS.match(inside):
                    return True
                break
    return False


def _compiles(path: Path) -> bool:
    """Whether a module compiles sources of CUDA's when it is imported: `_backend = load(…)`."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return b"cpp_extension" in data and _COMPILES.search(data) is not None


def _loads(path: Path, data: bytes) -> bool:
    """Whether a module loads compiled kernels, as `from . import nms_cuda` of no module does."""
    if _LOADS.search(data):
        return True
    found = _COMPILED.search(data)
    return found is not None and _is_missing(path, found)


def _cannot_do_without(path: Path, found: re.Match[bytes]) -> bool:
    """Whether it is `from . import nms_cuda` of no module, under no condition."""
    outside = not found[0][:1].isspace()
    return outside and found[1].endswith(b"_cuda") and _is_missing(path, found)


def _is_missing(path: Path, found: re.Match[bytes]) -> bool:
    """Whether what a module imports from beside it is not there, as it is compiled."""
    return not any((path.parent / f"{found[1].decode()}{end}").exists() for end in ("", ".py"))


def _imports_one_of(extensions: frozenset[str]) -> re.Pattern[bytes] | None:
    """What a module has in it that imports an extension; None where there is none."""
    if not extensions:
        return None
    names = "|".join(map(re.escape, sorted(extensions)))
    return re.compile(rf"^[ \t]*(?:from|import)[ \t]+(?:{names})\b".encode(), re.M)


def _is_bare(node: ast.ClassDef) -> bool:
    """Whether a class has no base that could bring a `.to()`."""
    return all(getattr(base, "id", "") == "object" for base in node.bases)


def _binds_cuda(stmt: ast.stmt) -> bool:
    """Whether a statement of a module makes `cuda` a function of it."""
    if isinstance(stmt, ast.FunctionDef):
        return stmt.name == "cuda"
    return (
        isinstance(stmt, ast.ImportFrom)
        and bool(stmt.level)
        and any((a.asname or a.name) == "cuda" for a in stmt.names)
    )


def _package(path: Path, root: Path) -> str:
    """The dotted name of the package that a module is in; "" for one in no package, or a test."""
    parts: list[str] = []
    folder = path.resolve().parent
    while (folder / "__init__.py").exists() and folder != root.resolve():
        parts.insert(0, folder.name)
        folder = folder.parent
    tests = any(part.startswith("test") for part in (*parts, path.name))
    return "" if tests else ".".join(parts)
