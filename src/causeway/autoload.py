"""What Causeway does at the end of `import torch`: give the chip its name, its module and its
operators.

It opens no device, and it never raises: `import torch` must not fail because of a chip. What went
wrong is kept in `state`; `causeway doctor` reports it and `torch.<name>.is_available()` is False.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Any

from causeway import config
from causeway.errors import (
    CausewayError,
    DeviceIndexError,
    DeviceLostError,
    FallbackError,
    UnsupportedDtypeError,
    VendorError,
)
from causeway.state import LAUNCHED, MARKER, state


def start() -> None:
    """Do it once. Never raises but SystemExit, where `causeway run` cannot keep its promise."""
    if state.started:
        return
    state.started = True
    begin = time.thread_time()
    try:
        _attach()
    except Exception as error:  # kept, and reported by doctor
        state.error = error
        _end_what_was_launched(f"CUDA cannot be redirected: {error}")
        _register_without_device()
    try:
        _find_problems()
    except Exception as error:
        state.problems.append(
            config.Problem("error", f"the settings could not be checked: {error}")
        )
    config.over("at import")
    state.seconds = time.thread_time() - begin
    _warn()


def _attach() -> None:
    import torch

    from causeway import device_name, vendor

    _start_compat()
    chosen = vendor.choose()
    state.vendor, state.library, state.reason = chosen.name, chosen.library, chosen.reason

    _C = _import_core()
    _C.set_error_types(
        {
            "Causeway": CausewayError,
            "Vendor": VendorError,
            "DeviceLost": DeviceLostError,
            "Fallback": FallbackError,
            "UnsupportedDtype": UnsupportedDtypeError,
            "Index": DeviceIndexError,
        }
    )
    _C.set_name_check(device_name.refusal)
    chosen.declare()
    settings = vendor.Settings(chosen.name)
    settings.push()
    try:
        if chosen.library.endswith(vendor.PAPER):
            from causeway.coverage import paper

            paper.load(chosen.library, settings)
        else:
            _C.load_vendor(chosen.library)
        state.vendor = settings.vendor = str(_C.vendor_state()["name"])
        settings.push()
    except Exception as error:  # the module is there all the same, to say why it has no device
        state.error = error

    name = _device_name()
    device_name.attached(name)
    if name != device_name.NEUTRAL:
        torch.utils.rename_privateuse1_backend(name)
    state.device = name
    _C.register_graph()

    from causeway import device, workarounds

    torch._register_device_module(name, device.module)  # type: ignore[no-untyped-call]
    if state.compat:
        from causeway import compat

        compat.attached()
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    workarounds.apply()
    atexit.register(_at_exit)
    if state.error is None:
        _push_settings()
        from causeway import integrations

        integrations.start(name)
    _redirect()
    _import_apex()


def _at_exit() -> None:
    import torch

    from causeway import _C

    # Left on, it ends the process by a crash, with the CPU alone as well (torch 2.13). A program
    # leaves it on where an error ends the profile, such as a device that is lost.
    if torch.autograd._profiler_enabled():
        with contextlib.suppress(Exception):
            torch.autograd._disable_profiler()
    _C.drain_autograd_threads()


def _start_compat() -> None:
    """Stand in for another system's packages, where that is asked for; else nothing is imported."""
    import torch

    installed = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), MARKER)
    if config.given("compat") or os.path.exists(installed):
        from causeway import compat

        try:
            compat.start()
        except CausewayError as error:
            state.problems.append(config.Problem("error", str(error)))
    _hint_where_imports_fail()


def _hint_where_imports_fail() -> None:
    """Where a program ends for want of a package that Causeway can stand in for, or that is for
    CUDA, say so; but not where someone else shows exceptions.
    """
    if sys.excepthook is not sys.__excepthook__:
        return

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        sys.__excepthook__(kind, error, trace)
        if isinstance(error, ModuleNotFoundError):
            from causeway import compat
            from causeway.migrate import knowledge

            if said := compat.hint(error) or knowledge.hint(error):
                print(said, file=sys.stderr)

    sys.excepthook = show


def _import_core() -> types.ModuleType:
    import torch

    # Asked first: with another release _C may load, and fail later.
    built = Path(__file__).with_name("lib") / "torch_release"
    release = ".".join(torch.__version__.split(".")[:2])
    if built.exists() and (given := built.read_text().strip()) != release:
        raise CausewayError(
            f"causeway was built for torch {given}, and torch {torch.__version__} is installed: "
            "build it anew for this torch (`make build`, or `pip install --no-build-isolation "
            "--force-reinstall --no-deps` of its sources)"
        )
    try:
        from causeway import _C
    except ImportError as error:
        # Else the loader says what is wrong.
        gone = isinstance(error, ModuleNotFoundError) or "circular" in str(error)
        why = "it is not there" if gone else str(error)
        raise CausewayError(
            f"causeway._C cannot be imported with torch {torch.__version__}: {why}; build it anew "
            "for this torch (`make build`, or pip install)"
        ) from error
    return _C


def _device_name() -> str:
    """CAUSEWAY_DEVICE_NAME, else the vendor's own name. A library that failed to load may be called
    anything: then it is torch's own name, and the error is the library's.
    """
    from causeway import device_name

    asked: str = config.get("device_name").strip()
    if asked:
        why = device_name.refusal(asked)
        if why is None:
            return asked
        message = f"CAUSEWAY_DEVICE_NAME is {asked!r}: {why}; it counts as not set"
        state.problems.append(config.Problem("error", message))
    return state.vendor if device_name.refusal(state.vendor) is None else device_name.NEUTRAL


def _push_settings() -> None:
    """Hand the settings of the environment to the core. What it refuses is a problem, not a
    failure.
    """
    from causeway.debug import switch
    from causeway.ops import ladder, ledger

    for push in (
        ladder.start,
        ledger.start,
        switch.start,
        _hide_devices,
        _limit_memory,
        _profile_clock,
        _autocast_policies,
        _register_comm,
    ):
        try:
            push()
        except CausewayError as error:
            state.problems.append(config.Problem("error", str(error)))


def _redirect() -> None:
    """Redirect CUDA's calls where a setting asks for it; without one nothing of it is imported."""
    if config.get("transfer") == "off" and not config.get("transfer_report"):
        return
    from causeway.redirect import switch

    try:
        switch.start()
    except CausewayError as error:
        _end_what_was_launched(str(error))
        state.problems.append(config.Problem("error", str(error)))


def _end_what_was_launched(why: str) -> None:
    """End a program of `causeway run` whose CUDA calls would not be redirected."""
    if os.environ.get(LAUNCHED) and config.get("transfer") != "off":
        more = "" if "`causeway doctor`" in why else " (`causeway doctor` says more)"
        print(f"causeway run: {why}{more}", file=sys.stderr)
        sys.stderr.flush()
        raise SystemExit(2)


def _import_apex() -> None:
    """`import apex` gives ours, where the setting asks for it."""
    if not config.get("apex"):
        return
    from causeway.apex import importing

    try:
        importing.install()
    except CausewayError as error:
        state.problems.append(config.Problem("error", str(error)))


def _hide_devices() -> None:
    from causeway import _C

    if config.given("visible_devices"):
        # For C++, which counts devices with no Python in between. Bad tokens hide everything: to
        # run on another device than the one that was meant would be worse. torch.<name> reads the
        # setting anew at its first use, and names a bad token.
        visible = config.get("visible_devices")
        _C.set_visible_devices([] if visible is None else list(visible))


def _limit_memory() -> None:
    if not config.get("memory_cache"):
        from causeway import _C

        _C.set_memory_caching(False)
    if config.given("memory_fraction"):
        from causeway import device

        def limit() -> None:
            for index in range(device.device_count()):
                device.set_per_process_memory_fraction(config.get("memory_fraction"), index)

        device._lazy_call(limit)


def _autocast_policies() -> None:
    def apply() -> None:
        from causeway.ops import autocast

        autocast.apply()

    config.listen(["autocast"], apply)
    beside = f"{os.path.splitext(state.library)[0]}.autocast.toml"  # the vendor's word
    if config.given("autocast") or os.path.exists(beside):
        apply()


def _profile_clock() -> None:
    from causeway import _C

    def push() -> None:
        _C.set_profile_clock(config.get("profile_clock"))

    config.listen(["profile_clock"], push)
    if config.given("profile_clock"):
        push()


def _register_comm() -> None:
    from causeway.dist import backend

    backend.register(state.device)


def _register_without_device() -> None:
    """torch.<name> with nothing in it, so that code which asks whether there is a device gets its
    answer: of each chip that might have been meant.
    """
    import torch

    from causeway import device_name, vendor

    meant = config.get("device_name").strip() or state.vendor or config.get("vendor").strip()
    known = vendor.installed()
    for name in [meant, *known] if meant else vendor.real(known):
        if hasattr(torch, name) or device_name.refusal(name) is not None:
            continue
        module = types.ModuleType(f"torch.{name}", f"No device: {state.error}")
        module.is_available = lambda: False  # type: ignore[attr-defined]
        module.device_count = lambda: 0  # type: ignore[attr-defined]
        module.is_initialized = lambda: False  # type: ignore[attr-defined]
        setattr(torch, name, module)
        device_name.attached(name)


def _find_problems() -> None:
    from causeway import vendor

    vendors = list(vendor.installed()) if config.unlisted() else ["sim"]
    state.problems.extend(config.problems(vendor=state.vendor or "sim", vendors=vendors))


def messages() -> list[str]:
    """What went wrong at the start, a line each."""
    found = [problem.message for problem in state.problems]
    return found if state.error is None else [f"there is no device: {state.error}", *found]


def _warn() -> None:
    for message in messages():
        # Where warnings are errors: import torch must not fail, and doctor has it anyway.
        with contextlib.suppress(UserWarning):
            warnings.warn(f"causeway: {message} (`causeway doctor` says more)", stacklevel=2)
