"""`causeway run`: a CUDA program, untouched, on the device; and what the options mean by which
`record`, `profile`, `coverage` and `verify` take such a program too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from causeway.errors import CausewayError
from causeway.options import Compat, IsModule, Redirect, Target, told
from causeway.state import LAUNCHED


@dataclass(frozen=True)
class Launch:
    """How a program is brought to the device: what the options of options.py ask for."""

    redirect: bool | None = None
    target: str = "device"
    system: str = ""  # of causeway.compat

    def way(self, name: str, device: str, *, module: bool) -> str:
        """The way of `program.WAYS` for a program that this process runs."""
        if self.target == "cpu":
            return "transfer"
        if self.system:  # which redirects where its package would
            return "transfer" if self.redirect else ""
        from causeway import program

        return program.way(name, self.redirect, device, module=module)

    def tell(self, command: str, way: str) -> None:
        """Say on stderr how the program is brought, unless it goes there by itself."""
        if self.target == "cpu":
            said = "CUDA's calls are redirected to the CPU, as --target asks"
        elif self.system:
            said = (
                f"the program is for {self.system}, so it is run with CAUSEWAY_COMPAT="
                f"{self.system}; --compat off runs it as it is"
            )
        else:
            from causeway import program

            program.tell(command, way)
            return
        print(f"causeway {command}: {said}", file=sys.stderr)

    def environment(self, environment: MutableMapping[str, str]) -> None:
        """Have the processes that get `environment` run code for the system."""
        if not self.system:
            return
        from causeway import compat

        environment["CAUSEWAY_COMPAT"] = self.system
        path = [str(compat.first(self.system)), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(p for p in path if p)


def choose(
    programs: Sequence[str],
    module: bool,
    redirect: bool | None,
    target: str,
    system: str,
) -> Launch:
    """What the options ask for, of programs that one call runs. The usual ones import no torch.

    Raises CausewayError where they contradict each other or name what is not there.
    """
    from causeway import compat

    known = compat.systems()
    if redirect is False and target == "cpu":
        raise CausewayError("--no-redirect runs the program as it is: no --target")
    if target not in ("device", "cpu"):  # else the program finds out, and torch comes but once
        import torch  # noqa: F401

        from causeway.redirect.devices import resolve

        resolve(target)
    if system not in ("", "off", *known):
        raise CausewayError(f"--compat {system!r} is none of off, {', '.join(known)}")
    found = set[str]().union(*(_systems(name, module) for name in programs)) if not system else {""}
    if len(found) > 1:
        raise CausewayError(
            f"the program imports packages of {', '.join(sorted(found))}: choose one with --compat"
        )
    chosen = "" if system == "off" else system or "".join(found)
    if chosen and target == "cpu":
        raise CausewayError(
            f"--target cpu redirects CUDA's calls, and the program is for {chosen}: "
            "`causeway migrate` makes one that runs on the CPU too"
        )
    return Launch(redirect, target, chosen)


def _systems(name: str, module: bool) -> set[str]:
    """The systems whose packages a program imports; none of what cannot be read, which is Python's
    to complain about, and of traces.
    """
    from causeway import compat
    from causeway.program import text_of

    place = name.rpartition(":")[0]  # FILE:FUNCTION
    name = place if place.endswith(".py") and not module else name
    if not module and not name.endswith(".py") and name.endswith((".json", ".gz")):
        return set()
    with contextlib.suppress(CausewayError, ImportError):
        return compat.named_in(text_of(name, module))
    return set()


def enter(
    command: str,
    programs: Sequence[str],
    module: bool,
    redirect: bool | None,
    target: str,
    system: str,
) -> Launch:
    """`choose`, for a command that runs the program in this process or in its children: torch is
    imported after that, since a device has its name from the start. A mistake ends the command.
    """
    with told(command):
        chosen = choose(programs, module, redirect, target, system)
        if chosen.system and "torch" in sys.modules:
            from causeway.state import state

            if state.compat != chosen.system:
                raise CausewayError(
                    f"torch is imported already, so the program cannot be run for {chosen.system}: "
                    f"set CAUSEWAY_COMPAT={chosen.system}"
                )
    chosen.environment(os.environ)
    attach()
    return chosen


def attach() -> None:
    """Import torch, and Causeway's device with it."""
    import torch  # noqa: F401

    import causeway

    causeway._autoload()  # for TORCH_DEVICE_BACKEND_AUTOLOAD=0


def run_program(
    program: Annotated[
        list[str], typer.Argument(help="The script and its arguments, as python takes them.")
    ],
    module: IsModule = False,
    redirect: Redirect = None,
    target: Target = "device",
    report: Annotated[
        str, typer.Option(help="Write what was redirected to this file, as JSON.")
    ] = "",
    system: Compat = "",
) -> None:
    """Run a program for CUDA untouched: its CUDA calls go to the device.

    `causeway run train.py --lr 0.1` is `python train.py --lr 0.1` with CUDA redirected, in the
    processes that it starts too: `causeway run -m torch.distributed.run train.py`. `import apex`
    gives causeway.apex where no other is installed. A program that imports torch_npu, torch_mlu,
    torch_dipu or mindtorch gets Causeway's (docs/compat.md), and redirects CUDA's calls only where
    that package would.
    """
    with told("run"):
        if redirect is False and report:
            raise CausewayError("--no-redirect runs the program as it is: no --report")
        chosen = choose(program[:1], module, redirect, target, system)
    start(["-m", *program] if module else program, chosen, report)


def start(arguments: list[str], chosen: Launch, report: str) -> None:
    """Become `python ARGUMENTS`, with CUDA redirected, or as code for another system.

    The program is Python's own from its first line to its exit status: this process is replaced,
    and the redirection is turned on at the end of the program's `import torch`. Where that fails,
    autoload ends the program.
    """
    from causeway.redirect import tools

    environment = dict(os.environ)
    tools.take_back(environment)
    for name in [n for n in environment if n.startswith("CAUSEWAY_TRANSFER")]:
        del environment[name]
    chosen.environment(environment)
    if not chosen.system if chosen.redirect is None else chosen.redirect:
        environment["CAUSEWAY_TRANSFER"] = "cpu" if chosen.target == "cpu" else "device"
        environment["_CAUSEWAY_TRANSFER_ROOT"] = str(os.getpid())  # which stays ours
        tools.add(environment)
    if report:
        environment["CAUSEWAY_TRANSFER_REPORT"] = os.path.abspath(report)
    environment[LAUNCHED] = "1"
    environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)  # it is what turns this on
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *_flags(), *arguments], environment)


def _flags() -> list[str]:
    """The flags of this interpreter: `python -X dev -m causeway run` hands them on."""
    import subprocess

    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined, no-any-return]
