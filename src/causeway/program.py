"""A user's program in this process, as `python script.py` or `python -m module` would run it, and
what brings one to the device that does not name it. `causeway run` replaces its process instead.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, PathFinder
from itertools import accumulate
from pathlib import Path
from typing import Any

from causeway.errors import CausewayError

# How a program comes to the device that does not name it, in words.
WAYS = {
    "transfer": "CUDA's calls redirected (causeway.transfer)",
    "default": "torch.set_default_device({name!r})",
}


@contextlib.contextmanager
def brought(way: str, device: str, target: str = "device") -> Iterator[None]:
    """Bring what is run within to `device` by one of `WAYS`, or by none for "". `target`: where
    CUDA's calls are redirected to.
    """
    if way == "transfer":
        from causeway import redirect
        from causeway.apex import importing

        with redirect.enable(target):
            importing.install_where_absent()  # a program for CUDA imports an apex built for it
            yield
    elif way == "default":
        import torch

        with torch.device(device):
            yield
    else:
        yield


def way(program: str | Path, asked: bool | None, device: str, *, module: bool = False) -> str:
    """The way of `WAYS` for a program that runs once, and so cannot be tried first.

    `asked` decides where it is not None; else a program whose own text names CUDA and not `device`
    is redirected. Where this process redirects already there is nothing to bring.
    """
    from causeway.redirect import switch

    if switch.enabled() or asked is False:
        return ""
    if asked:
        return "transfer"
    text = text_of(str(program), module)
    names_cuda = re.search(r"(?i)(?<![a-z])cuda(?![a-z])", text) is not None
    names_device = re.search(rf"\btorch\.{device}\b|[\"']{device}(:\d+)?[\"']", text) is not None
    return "transfer" if names_cuda and not names_device else ""


def tell(command: str, chosen: str) -> None:
    """Say on stderr how the program is brought to the device, unless it goes there by itself."""
    if chosen:
        print(
            f"causeway {command}: the program names CUDA, so it is run with {WAYS[chosen]}; "
            "--no-redirect runs it as it is",
            file=sys.stderr,
        )


def run(
    program: str | Path, arguments: Sequence[str] = (), *, module: bool = False, root: str = ""
) -> None:
    """Run a script, or a module by its name, as `__main__` with `arguments`. A module is looked for
    in `root` first, "" for the current folder.

    What it raises, SystemExit too, reaches the caller. It stays `sys.modules["__main__"]`, with
    its `sys.argv` and `sys.path`: what it leaves for later (pickles, processes, atexit) finds its
    names there.

    Raises:
        CausewayError: there is no such program, or it cannot be read.
        SyntaxError, ValueError: what Python says of a text that is no program.
    """
    spec, code = _module(str(program), root) if module else (None, _script(Path(program)))
    path = str(program) if spec is None else str(spec.origin)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=spec)
    if spec is not None:
        main.__dict__.update(__package__=spec.parent, __loader__=spec.loader)
    sys.modules["__main__"] = main
    sys.argv[:] = [path, *arguments]
    if spec is None:
        sys.path[0] = str(Path(path).resolve().parent)
    exec(code, main.__dict__)


def status(program: str | Path, arguments: Sequence[str] = (), *, module: bool = False) -> int:
    """Run a program; print what it raises as Python would, and return its exit status."""
    try:
        run(program, arguments, module=module)
    except CausewayError:
        raise
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    except BaseException as error:
        error = without_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def function_at(target: str) -> Callable[..., Any] | None:
    """The function that FILE:FUNCTION or MODULE:FUNCTION names, after its module has run; of a name
    with dots, what the last one is. None where there is no such function.

    Raises CausewayError for a file that Python does not import, and what importing it raises.
    """
    place, _, name = target.rpartition(":")
    if not place:
        return None
    found: Any = _module_at(place)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None


def _module_at(place: str) -> types.ModuleType:
    if place.endswith(".py") or os.sep in place:
        path = Path(place).resolve()
        sys.path[0] = str(path.parent)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise CausewayError(f"{place} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    sys.path[0] = os.getcwd()
    return importlib.import_module(place)


def without_frames(error: BaseException) -> BaseException:
    """The error without the frames of this file, as Python would show it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)


def file_of(module: str) -> tuple[Path, Path]:
    """The file of a module that can be run, and the folder that it is imported from.

    Raises CausewayError where there is no such module, or no file of it.
    """
    first = sys.path[0]
    try:
        spec, _ = _module(module)
    finally:
        sys.path[0] = first
    if spec.origin is None or not Path(spec.origin).is_file():
        raise CausewayError(f"the module {module!r} has no file")
    path = Path(spec.origin).resolve()
    return path, path.parents[spec.name.count(".")]


def text_of(name: str, module: bool) -> str:
    """The source of a program, of which nothing is imported. Raises CausewayError where it cannot
    be read.
    """
    if module:
        spec = _spec_of(name)
        assert isinstance(spec.loader, InspectLoader)
        return spec.loader.get_source(spec.name) or ""
    try:
        return Path(name).read_text(errors="replace")
    except OSError as error:
        raise CausewayError(f"{name} cannot be read: {error.strerror}") from None


def _spec_of(name: str) -> ModuleSpec:
    """As _module, without the imports of the packages around it, which may import torch."""
    sys.path[0] = ""  # as `python -m` does
    spec, where = None, None
    for full in accumulate(name.split("."), "{}.{}".format):
        try:
            spec = PathFinder.find_spec(full, where)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            break
        where = spec.submodule_search_locations
    if spec is not None and where is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", where)
    if spec is None or not isinstance(spec.loader, InspectLoader):
        return _module(name)[0]  # found by another finder; or it says what is wrong
    return spec


def _script(path: Path) -> types.CodeType:
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise CausewayError(f"{path} cannot be read: {error.strerror}") from None


def _module(name: str, root: str = "") -> tuple[ModuleSpec, types.CodeType]:
    sys.path[0] = root  # "" as `python -m` does
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise CausewayError(f"the module {name!r} cannot be found: {error}") from None
    code = (
        spec.loader.get_code(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None
    )
    if spec is None or code is None:
        raise CausewayError(f"there is no module {name!r} that could be run")
    return spec, code
