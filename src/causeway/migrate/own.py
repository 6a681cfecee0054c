"""What a tree has of its own by CUDA's names, which one module alone does not show.

Classes with a method `cuda`, modules with a function `cuda`, packages whose modules load a compiled
extension, and whether the tree tells several vendors' devices apart. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from causeway.migrate.source import tree_of

# A method, a function or an import of it; indented or not.
_CUDA = re.compile(rb"\bdef[ \t]+(?:cuda|npu|mlu|dipu)[ \t]*\(|\bimport\b[^#]{0,400}\bcuda\b")
_METHODS = {"cuda", "npu", "mlu", "dipu"}
# How a module loads what was compiled for it.
_LOADS = re.compile(
    rb"\bload_ext\(|\btorch\.(?:ops|classes)\.load_library\("
    rb"|^[ \t]*(?:from|import)[ \t]+(?!torch\b)[\w. ,]*\b_C\b",
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
_FOLDERS = {"cuda", "rocm", "hip", "xpu", "npu", "ascend", "hpu", "mps", "metal", "mlu", "musa"}
_SEVERAL = 3
# A module that defines kernels of Triton's, and how many of a folder's modules show that all are
# about such kernels.
_TRITON = re.compile(rb"^[ \t]*@(?:triton\.)?(?:jit|autotune|heuristics)\b", re.M)
_MOST = 3
# A module of one vendor's beside those of others: cuda_accelerator.py and npu_accelerator.py.
_MODULE = re.compile(r"(cuda|npu|mlu|musa|hpu)_(\w+)")
# k2's automata and losses, which are on the CPU or on CUDA's device, as are the tensors for them.
_K2 = re.compile(rb"^(?:from|import)[ \t]+k2\b", re.M)
_CTRANSLATE2 = re.compile(rb"^(?:from|import)[ \t]+(?:ctranslate2|faster_whisper)\b", re.M)
# Attributes that are called as tensor types are: self.Tensor, opt.FloatTensor.
_ATTRIBUTES = re.compile(rb"\b(?!torch\b|th\b|cuda\b)\w+\.(\w*Tensor)\b")
LEGACY = re.compile(rb"\b(?:torch|th)\.Tensor\(")
# Vendors of which a tree has a name or a question: IS_NPU, is_torch_mlu_available(), IS_NVIDIA.
_VENDOR = re.compile(
    rb"\bIS_(AMD|INTEL|NVIDIA|ASCEND|NPU|MLU|MUSA|HPU|GCU|SDAA)(?:_AVAILABLE)?\b"
    rb"|\bdef[ \t]+is_(?:torch_)?(npu|mlu|hpu|musa|gcu|sdaa)_available\b"
    rb"|\bis_torch_(cuda|xpu|npu|mlu|hpu|musa)_available\b"
)
# A function that names the device that is there, which may be one of several vendors'.
_GIVES = re.compile(
    rb"""^[ \t]*return[ \t]+["'](cuda|npu|mlu|musa|hpu|gcu|sdaa)["'][ \t]*(?:#.*)?$""", re.M
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


NOTHING = Own()  # of a module that is read alone


def find(paths: Iterable[Path], root: Path, extensions: frozenset[str] = frozenset()) -> Own:
    """What the modules of a tree have of their own. `extensions`: what it builds for CUDA."""
    built = _imports_one_of(extensions)
    classes: set[str] = set()
    without_to: set[str] = set()
    functions: set[str] = set()
    kernels: set[str] = set()
    imported: set[str] = set()
    attributes: set[str] = set()
    shared: set[str] = set()
    triton: dict[Path, list[str]] = {}
    number: Counter[Path] = Counter()
    vendors: set[bytes] = set()
    folders: dict[Path, set[str]] = {}
    wrappers: set[str] = set()
    top = root.resolve()
    legacy = ctranslate2 = False
    beside_k2: set[Path] = set()
    by_rest: dict[tuple[Path, str], list[Path]] = {}
    for path in paths:
        name = path.parent.name if path.name == "__init__.py" else path.stem
        if (vendor := path.parent.name) in _FOLDERS:
            folders.setdefault(path.parent.parent, set()).add(vendor)
        tree = tree_of(path, _CUDA.search)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.ClassDef):
                methods = {getattr(stmt, "name", "") for stmt in node.body}
                if methods & _METHODS:
                    classes.add(node.name)
                    if "to" not in methods and _is_bare(node):
                        without_to.add(node.name)
        if tree is not None and any(_binds_cuda(stmt) for stmt in tree.body):
            functions.add(name)
        with suppress(OSError):
            data = path.read_bytes()
            # A program may be called after the device that it was tried on.
            if (of_one := _MODULE.fullmatch(path.stem)) and b"__main__" not in data:
                by_rest.setdefault((path.parent, of_one[2]), []).append(path)
            imported |= {n.decode() for m in _TYPES.finditer(data) for n in _TYPE.findall(m[1])}
            if _CTRANSLATE2.search(data) and _package(path, root):
                ctranslate2 = True
            if _K2.search(data):
                beside_k2.add(path.parent)
            number[path.parent] += path.name != "__init__.py"
            if b"triton" in data and _TRITON.search(data):
                module = ".".join(filter(None, (_package(path, root), path.stem)))
                triton.setdefault(path.parent, []).append(module)
            here = {n.decode() for n in _ATTRIBUTES.findall(data)}
            shared |= here & attributes
            attributes |= here
            legacy = legacy or LEGACY.search(data) is not None
            vendors |= {(m[1] or m[2] or m[3]).lower() for m in _VENDOR.finditer(data)}
            given = {name.lower() for name in _GIVES.findall(data)}
            vendors |= given if len(given) > 1 else set()
            loads = _loads(path, data) or (built is not None and built.search(data) is not None)
            if any(_compiles(path.parent / f"{n.decode()}.py") for n in _TAKES.findall(data)):
                wrappers.add(path.resolve().relative_to(top).as_posix())
                loads = True
            if loads and (package := _package(path, root)):
                kernels.add(package)
    about = {m for found in triton.values() for m in found}
    for folder, found in triton.items():
        if len(found) * _MOST >= number[folder] and (package := _package(folder / "a.py", root)):
            about.add(package)
    own_folders = {
        (home / "cuda").resolve().relative_to(top).as_posix()
        for home, names in folders.items()
        if "cuda" in names
        and len(names) >= _SEVERAL
        and (home / "cuda").resolve().is_relative_to(top)
    }
    return Own(
        frozenset(classes), frozenset(without_to), frozenset(functions), frozenset(kernels),
        frozenset(imported), frozenset(shared), frozenset(about), ctranslate2, legacy,
        len(vendors) > 1 and bool(vendors - _TORCHS), frozenset(own_folders), frozenset(wrappers),
        frozenset(
            home.resolve().relative_to(top).as_posix()
            for home in beside_k2 if home.resolve().is_relative_to(top)
        ),
        frozenset(
            path.resolve().relative_to(top).as_posix()
            for found in by_rest.values()
            if len(found) > 1 and any(path.stem.startswith("cuda_") for path in found)
            for path in found if path.resolve().is_relative_to(top)
        ),
    )  # fmt: skip


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
    return found is not None and not any(
        (path.parent / f"{found[1].decode()}{end}").exists() for end in ("", ".py")
    )


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
