"""Random numbers: a generator a device, seeded as torch.cuda's are."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from causeway import _C
from causeway.device.lazy import _lazy_call, _lazy_init, count_devices, is_initialized
from causeway.device.selection import Device, _get_device_index, current_device

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def default_generators() -> tuple[torch.Generator, ...]:
    """The generator of each visible device; `torch.<name>.default_generators` is this tuple."""
    return tuple(_C.default_generator(index) for index in range(count_devices()))


def _get_generator(device: torch.device) -> torch.Generator:
    return _C.default_generator(_get_device_index(device, optional=True))


def get_rng_state(device: Device = None) -> torch.Tensor:
    """Return the state of the generator of `device`, the current one by default, as a tensor of
    bytes.
    """
    _lazy_init()
    return _C.default_generator(_get_device_index(device, optional=True)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the state of the generator of each device."""
    return [get_rng_state(index) for index in range(count_devices())]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Set the state of the generator of `device`, the current one by default."""
    if not is_initialized():
        with torch._C._DisableFuncTorch():
            new_state = new_state.clone(memory_format=torch.contiguous_format)

    def set_it() -> None:
        _C.default_generator(_get_device_index(device, optional=True)).set_state(new_state)

    _lazy_call(set_it)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the state of the generator of each device."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _get_rng_state_offset(device: Device = None) -> int:
    _lazy_init()
    return int(_C.default_generator(_get_device_index(device, optional=True)).get_offset())


def _set_rng_state_offset(offset: int, device: Device = None) -> None:
    def set_it() -> None:
        _C.default_generator(_get_device_index(device, optional=True)).set_offset(offset)

    _lazy_call(set_it)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator. Without a device it does nothing."""
    seed = int(seed)
    _lazy_call(lambda: _seed_one(_current(), seed), seed=True)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices. torch.manual_seed does it too. Without a device it does
    nothing.
    """
    seed = int(seed)

    def seed_each() -> None:
        for index in range(count_devices()):
            _seed_one(index, seed)

    _lazy_call(seed_each, seed_all=True)


def _current() -> int:
    """The current device's index, as current_device gives it, but opening none."""
    return int(torch._C._accelerator_getDeviceIndex())


def _seed_one(index: int, seed: int) -> None:
    _C.default_generator(index).manual_seed(seed)


def seed() -> None:
    """Seed the current device's generator with a random number."""
    _lazy_call(lambda: _seed_randomly([current_device()]))


def seed_all() -> None:
    """Seed the generators of all devices with one random number."""
    _lazy_call(lambda: _seed_randomly(range(count_devices())))


def _seed_randomly(indices: Iterable[int]) -> None:
    number: int | None = None
    for index in indices:
        generator = _C.default_generator(index)
        if number is None:
            number = generator.seed()
        else:
            generator.manual_seed(number)


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    _lazy_init()
    return int(_C.default_generator(current_device()).initial_seed())
