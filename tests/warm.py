"""Programs in a fork of a Python that has imported torch already, instead of in a new Python.

Most of what a short program costs is `import torch`: a fork takes a fifth of the time.
`run` gives what `subprocess.run([sys.executable, *arguments])` gives, and the program cannot tell:
torch is not imported until it imports it, Causeway is loaded by that as ever, the environment is
its own, and it ends as a process does. What a Python reads when it starts (PYTHONHASHSEED,
OMP_NUM_THREADS and the like) no fork can change: then a new one is started.

A program whose text names torch's compiler, or the database of torch's tests, is forked from a
Python that has the compiler too, whose import takes three times that of torch. It too is put back
when the program imports it: each module with those that it had imported, by an import of each, so
that who watches for one of them sees it. What is not torch's is in sys.modules from the start.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
# Read by the interpreter, its libraries or torch before a program has its turn.
AT_START = (
    "PYTHON", "LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "ATEN_",
    "TORCH", "PYTORCH", "MALLOC_", "GLIBC_", "LANG", "LC_", "TZ",
)  # fmt: skip
# But not these: torch sets them as its parts are imported, or they are read for each program anew.
LATER = {AUTOLOAD, "PYTHONPATH", "PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHINDUCTOR_CACHE_DIR"}
COMPILES = re.compile(
    r"torch\.compile\(|torch\.export|torch\._(dynamo|inductor|export)|testing\._internal"
)


def run(
    arguments: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    new: bool = False,
    compiles: bool | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `python ARGUMENTS` printed, given no input, and its status; TimeoutExpired as ever.

    `new`: in a new Python in any case. `compiles`: whether torch's compiler is there ahead; by
    the program's text if None.
    """
    words = [str(word) for word in arguments]
    environment = dict(os.environ if env is None else env)
    folder = Path(cwd or Path.cwd())
    if compiles is None:
        compiles = bool(COMPILES.search(_text(words, folder)))
    server = _compiling if compiles else _server
    if not new and server.can(words, environment, folder) and server.lock.acquire(blocking=False):
        try:
            return server.run(words, environment, folder, timeout)
        finally:
            server.lock.release()
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=cwd, timeout=timeout,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a fork cannot change."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(AT_START) and name not in LATER
    }


def _text(words: Sequence[str], folder: Path) -> str:
    """The program itself, where the command line says which."""
    if words[0] == "-c":
        return words[1]
    path = folder / words[0]
    return path.read_text(errors="replace") if path.is_file() else ""


class _Server:
    """The Python that forks itself: started when it is first needed, ended by this process's end.
    One program at a time, by whoever holds `lock`. `more`: what it imports beside torch.
    """

    def __init__(self, *more: str) -> None:
        self._more = more
        self.lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._started_with: dict[str, str] = {}

    def can(self, words: list[str], environment: dict[str, str], cwd: Path) -> bool:
        """Whether a fork is the same as a new Python to this program."""
        folders = environment.get("PYTHONPATH", "").split(os.pathsep)
        site = any((Path(folder) / "sitecustomize.py").exists() for folder in folders if folder)
        # Not so where there is an option of the interpreter's own, as `-X dev`, or nothing to run.
        known = words[0] in ("-c", "-m") or (cwd / words[0]).is_file()
        return known and not site and at_start(environment) == at_start(os.environ)

    def run(
        self, words: list[str], environment: dict[str, str], cwd: Path, timeout: float | None
    ) -> subprocess.CompletedProcess[str]:
        connection = self._connection()
        command = [sys.executable, *words]
        what = {"words": words, "environment": environment, "cwd": str(cwd)}
        request = json.dumps(what).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            header = len(request).to_bytes(8, "little")
            socket.send_fds(connection, [header], [out.fileno(), err.fileno()])
            connection.sendall(request)
            pid = self._reply()
            expired = threading.Event()

            def kill() -> None:
                expired.set()
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

            timer = threading.Timer(timeout or threading.TIMEOUT_MAX, kill)
            timer.daemon = True
            timer.start()
            try:
                status = self._reply()
            except BaseException:  # a test's own timeout: the reply would be taken for the next's
                kill()
                self._socket = None
                raise
            finally:
                timer.cancel()
            out.seek(0)
            err.seek(0)
            output, errors = out.read().decode(), err.read().decode()
        if expired.is_set():
            raise subprocess.TimeoutExpired(command, timeout or 0, output, errors)
        return subprocess.CompletedProcess(command, status, output, errors)

    def _connection(self) -> socket.socket:
        if self._socket and self._started_with == at_start(os.environ):
            return self._socket
        if self._socket:  # a test has changed what is read at the start, for those after it
            self._replies.close()
            self._socket.close()
            self._process.wait()
        self._started_with = at_start(os.environ)
        self._socket, theirs = socket.socketpair()
        self._replies = self._socket.makefile("r")
        environment = dict(os.environ) | {AUTOLOAD: "0"}
        environment.pop("PYTHONPATH", None)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *self._more],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        return self._socket

    def _reply(self) -> int:
        line = self._replies.readline()
        if not line:
            self._socket = None  # the next program has another
            raise RuntimeError(f"the Python to fork from has ended: {self._process.wait()}")
        return int(line)


_server = _Server()
_compiling = _Server(
    "torch._dynamo", "torch._inductor.compile_fx", "scipy.signal", "scipy.stats", "hypothesis"
)


class _Torch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Puts the torch that is there already into sys.modules when a program imports it."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("torch")
        assert found is not None
        self._spec = found
        names = [name for name in sys.modules if name.partition(".")[0] == "torch"]
        self._modules = {name: sys.modules.pop(name) for name in names}

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        spec = importlib.machinery.ModuleSpec(name, self, origin=self._spec.origin)
        spec.submodule_search_locations = self._spec.submodule_search_locations
        spec.has_location = True
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        sys.modules.update(self._modules)
        return self._modules["torch"]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec
        sys.meta_path.remove(self)
        module.default_generator.seed()  # by chance, as ever
        # The last thing that `import torch` does.
        if module._is_device_backend_autoload_enabled():
            module._import_device_backends()


class _More(importlib.abc.MetaPathFinder):
    """Hides modules of torch's that `import torch` does not bring, and puts each back when it is
    imported, after those that it had imported: `imports`, by the names of modules.
    """

    def __init__(self, names: Sequence[str], imports: Mapping[str, Sequence[str]]) -> None:
        self._imports = imports
        self._hidden = {name: sys.modules.pop(name) for name in names}
        self._specs = {name: module.__spec__ for name, module in self._hidden.items()}
        # What a package calls by the name of a module of its own need not be that module.
        self._attributes: dict[str, dict[str, object]] = {}
        for name, module in self._hidden.items():
            parent, _, child = name.rpartition(".")
            if parent in self._hidden:
                value = vars(self._hidden[parent]).get(child)
                self._attributes.setdefault(parent, {})[child] = value
            elif parent and vars(sys.modules[parent]).get(child) is module:
                delattr(sys.modules[parent], child)  # an import sets it again

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._hidden:
            return None
        origin = self._specs[name]
        loader = _Hidden(self)  # one for each: who watches for a module changes its loader
        spec = importlib.machinery.ModuleSpec(name, loader, origin=origin and origin.origin)
        spec.submodule_search_locations = origin and origin.submodule_search_locations
        return spec

    def take(self, name: str) -> types.ModuleType:
        return self._hidden.pop(name)

    def put_back(self, module: types.ModuleType) -> None:
        name = module.__name__
        vars(module)["__spec__"] = self._specs[name]  # some refuse to be written to
        for other in self._imports.get(name, ()):
            if other in self._hidden:
                importlib.import_module(other)
        for child, value in self._attributes.get(name, {}).items():
            if f"{name}.{child}" in sys.modules:
                setattr(module, child, value)


class _Hidden(importlib.abc.Loader):
    """Of one module that `_More` hides."""

    def __init__(self, finder: _More) -> None:
        self._finder = finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._finder.take(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        self._finder.put_back(module)


def _preload(names: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Import modules; give the names of torch's that are new, and what each of these imports."""
    before, imports = set(sys.modules), dict[str, list[str]]()
    plain, by_name = builtins.__import__, importlib.import_module

    def note(importer: str, name: str) -> None:
        if name in sys.modules and _is_torchs(importer) and _is_torchs(name):
            imports.setdefault(importer, []).append(name)

    def watched(name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
        module = plain(name, globals, locals, fromlist, level)
        importer = (globals or {}).get("__name__") or ""
        whole = name
        if level:
            package = (globals or {}).get("__package__") or importer
            whole = importlib.util.resolve_name("." * level + name, package)
        note(importer, whole)
        for item in fromlist or ():
            note(importer, f"{whole}.{item}")
        return module

    def watched_by_name(name: str, package: str | None = None) -> types.ModuleType:
        module = by_name(name, package)
        note(sys._getframe(1).f_globals.get("__name__", ""), module.__name__)
        return module

    builtins.__import__, importlib.import_module = watched, watched_by_name
    try:
        for name in names:
            by_name(name)
    finally:
        builtins.__import__, importlib.import_module = plain, by_name
    return [n for n in sys.modules if _is_torchs(n) and n not in before], imports


def _is_torchs(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "functorch")


def _requests(channel: socket.socket) -> dict[str, object] | None:
    """Fork for each request that comes; in the fork give the request, at the end None."""
    while True:
        header, fds, _, _ = socket.recv_fds(channel, 8, 2)
        if not header:
            return None
        text = b""
        while len(text) < int.from_bytes(header, "little"):
            text += channel.recv(1 << 20)
        pid = os.fork()
        if pid == 0:
            channel.close()
            for fd, place in zip(fds, (1, 2), strict=True):
                os.dup2(fd, place)
                os.close(fd)
            request: dict[str, object] = json.loads(text)
            return request
        for fd in fds:
            os.close(fd)
        channel.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        channel.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(
    words: list[str],
    environment: dict[str, str],
    cwd: str,
    hidden: Sequence[str],
    imports: Mapping[str, Sequence[str]],
) -> None:
    """Run `python WORDS` in this process, as the interpreter would."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    del sys.path[0]  # this file's folder
    sys.path[:0] = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    sys.orig_argv = [sys.executable, *words]
    if hidden:
        sys.meta_path.insert(0, _More(hidden, imports))
    sys.meta_path.insert(0, _Torch())
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        sys.path.insert(0, cwd)
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        exec(compile(words[1], "<string>", "exec", dont_inherit=True), main.__dict__)
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        main.__file__ = os.path.abspath(words[0])
        source = Path(words[0]).read_bytes()
        exec(compile(source, main.__file__, "exec", dont_inherit=True), main.__dict__)


def _main() -> None:
    import gc

    import torch  # noqa: F401

    hidden, imports = _preload(sys.argv[2:])
    gc.collect()
    gc.freeze()  # else the end of each fork looks at all of torch again
    request = _requests(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    try:
        _become(**request, hidden=hidden, imports=imports)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        here = error.__traceback__
        while here and here.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
            here = here.tb_next
        sys.excepthook(type(error), error.with_traceback(here), here)
        sys.exit(1)


if __name__ == "__main__":
    _main()
