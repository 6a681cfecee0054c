"""Lightning, Trainer and Fabric: an accelerator of its own in their registries, which "auto" finds.

The registries are public, but what follows the choice is in lists of the names "cuda", "mps" and
"cpu": the device of a single process, and that of autocast, which would be "cuda" for any other
name, so that "bf16-mixed" would not mix. Those lists get the device's name (see relabel.py).
The package has two names for each half, lightning.pytorch and pytorch_lightning.
"""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any

import torch

from causeway import integrations
from causeway.integrations import relabel

PYTORCH = ("lightning.pytorch", "pytorch_lightning")
FABRIC = ("lightning.fabric", "lightning_fabric")


def _module() -> Any:
    return torch.get_device_module(integrations.state.device)


def accelerator(base: type, wrong: type[Exception]) -> type:
    """A class of accelerator for the device, of Lightning's `base`, which raises `wrong`."""

    def count() -> int:
        return int(_module().device_count()) if _module().is_available() else 0

    def setup_device(self: Any, device: torch.device) -> None:
        if device.type != integrations.state.device:
            raise wrong(f"Device should be {integrations.state.device}, got {device} instead")
        _module().set_device(device)

    def parse_devices(devices: int | str | list[int]) -> list[int] | None:
        """Indices of devices, of a number, "0,1", a list, or -1 for all."""
        if isinstance(devices, str):
            text = devices.strip()
            devices = (
                [int(part) for part in text.split(",") if part.strip()]
                if "," in text
                else int(text)
            )
        if devices == 0 or devices == []:
            return None
        there = count()
        if isinstance(devices, int):
            found = list(range(there if devices == -1 else devices))
        else:
            found = list(devices)
            if found == [-1]:
                found = list(range(there))
        bad = [index for index in found if not 0 <= index < there]
        if bad or not found or len(set(found)) != len(found):
            raise wrong(
                f"You requested {integrations.state.device} devices {devices!r}; this machine has "
                f"{list(range(there))}, and each can be there once"
            )
        return found

    def auto_device_count() -> int:
        # Several devices are several processes, and these need collectives.
        known = torch.distributed.is_available() and (
            integrations.state.device in torch.distributed.Backend.default_device_backend_map
        )
        return count() if known else min(count(), 1)

    return type(
        f"{integrations.state.device.capitalize()}Accelerator",
        (base,),
        {
            "__doc__": "Accelerator for the device that Causeway attached.",
            "__module__": __name__,
            "setup_device": setup_device,
            "teardown": lambda self: _module().empty_cache(),
            "get_device_stats": lambda self, device: _module().memory_stats(device),
            "parse_devices": staticmethod(parse_devices),
            "get_parallel_devices": staticmethod(
                lambda devices: [torch.device(integrations.state.device, i) for i in devices or []]
            ),
            "auto_device_count": staticmethod(auto_device_count),
            "is_available": staticmethod(lambda: count() > 0),
            "name": staticmethod(lambda: integrations.state.device),
        },
    )


def _register(registry: Any, base: type, root: str) -> None:
    fabric = root.replace("pytorch_lightning", "lightning_fabric").replace(".pytorch", ".fabric")
    errors = importlib.import_module(f"{fabric}.utilities.exceptions")
    made = accelerator(base, errors.MisconfigurationException)
    registry.register(integrations.state.device, made, description=made.__name__)
    integrations.note("lightning", f"{root}: {made.__name__} is in its registry")


def _connect(connector: type) -> None:
    """Make "auto" the device, and "gpu" where there is no other; know it as an object too."""
    auto = vars(connector)["_choose_auto_accelerator"].__func__
    gpu = vars(connector)["_choose_gpu_accelerator_backend"].__func__
    set_up = vars(connector)["_set_parallel_devices_and_init_accelerator"]

    @functools.wraps(auto)
    def _choose_auto_accelerator() -> str:
        found = str(auto())
        return integrations.state.device if found == "cpu" and _module().is_available() else found

    @functools.wraps(gpu)
    def _choose_gpu_accelerator_backend() -> str:
        try:
            return str(gpu())
        except Exception:
            if _module().is_available():
                return integrations.state.device
            raise

    @functools.wraps(set_up)
    def _set_parallel_devices_and_init_accelerator(self: Any) -> None:
        set_up(self)
        if type(self.accelerator).__module__ == __name__:
            self._accelerator_flag = integrations.state.device

    for name, new in (
        ("_choose_auto_accelerator", staticmethod(_choose_auto_accelerator)),
        ("_choose_gpu_accelerator_backend", staticmethod(_choose_gpu_accelerator_backend)),
        (
            "_set_parallel_devices_and_init_accelerator",
            _set_parallel_devices_and_init_accelerator,
        ),
    ):
        setattr(connector, name, new)


def _keep_random_state(module: types.ModuleType) -> None:
    """Have the device's random state kept with torch's: in `isolate_rng` and the sanity check."""
    collect, put = module._collect_rng_states, module._set_rng_states

    @functools.wraps(collect)
    def _collect_rng_states(include_cuda: bool = True) -> dict[str, Any]:
        states = dict(collect(include_cuda))
        if include_cuda and _module().is_available():
            states[f"torch.{integrations.state.device}"] = _module().get_rng_state_all()
        return states

    @functools.wraps(put)
    def _set_rng_states(rng_state_dict: dict[str, Any]) -> None:
        put(rng_state_dict)
        if (states := rng_state_dict.get(f"torch.{integrations.state.device}")) is not None:
            _module().set_rng_state_all(states)

    module._collect_rng_states = _collect_rng_states  # type: ignore[attr-defined]
    module._set_rng_states = _set_rng_states  # type: ignore[attr-defined]


def _tell(module: types.ModuleType) -> None:
    """Have the lines about devices name this one."""
    log, info = module._log_device_info, module.rank_zero_info

    @functools.wraps(log)
    def _log_device_info(trainer: Any) -> None:
        used = type(trainer.accelerator).__module__ == __name__
        info(f"{integrations.state.device} available: {_module().is_available()}, used: {used}")
        log(trainer)

    module._log_device_info = _log_device_info  # type: ignore[attr-defined]


def _wrap_model(strategy: type) -> None:
    """Have DDP wrap a model on a stream of the device's, as it does on one of CUDA's."""
    plain = vars(strategy)["_setup_model" if "_setup_model" in vars(strategy) else "setup_module"]
    ours = relabel.renamed(plain, "cuda", integrations.state.device)

    @functools.wraps(plain)
    def wrap(self: Any, *args: Any, **options: Any) -> Any:
        there = self.root_device.type == integrations.state.device
        return (ours if there else plain)(self, *args, **options)

    setattr(strategy, plain.__name__, wrap)


def _loaded(module: types.ModuleType) -> None:
    root = next((r for r in (*PYTORCH, *FABRIC) if module.__name__.startswith(f"{r}.")), None)
    if root is None:
        return
    name = module.__name__.removeprefix(f"{root}.")
    if name == "accelerators":
        registry = "AcceleratorRegistry" if root in PYTORCH else "ACCELERATOR_REGISTRY"
        _register(getattr(module, registry), module.Accelerator, root)
    elif name == "utilities.seed" and root in FABRIC:
        _keep_random_state(module)
    elif name in ("connector", "trainer.connectors.accelerator_connector"):
        lists = relabel.extend_lists(module, {"cuda", "mps"}, beside={"gpu", "cpu"})
        for needed in ("_choose_strategy", "_check_and_init_precision"):
            if not any(function.endswith(needed) for function in lists):
                raise LookupError(f"{needed} has no list of devices")
        _connect(module._AcceleratorConnector if root in PYTORCH else module._Connector)
    elif name == "trainer.setup":
        _tell(module)
    elif name == "strategies.ddp":
        _wrap_model(module.DDPStrategy)


INTEGRATION = integrations.Integration(
    ("2.6.6", "2.6.6"), 'an accelerator in its registries; "auto" and "gpu" choose it', _loaded
)
