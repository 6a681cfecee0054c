"""The `pynvml` of a program whose CUDA calls are redirected: the device's numbers by NVML's names.

Where no other pynvml is installed. What the device does not tell raises NVMLError_NotSupported, as
NVML itself does for a GPU that lacks a sensor; what is no name of NVML's is an AttributeError. Left
out: all that sets something, and processes, which devices do not tell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from causeway.errors import CausewayError
from causeway.redirect import readings
from causeway.redirect.places import note
from causeway.redirect.readings import Reading

# --- errors ---------------------------------------------------------------------------------------

_ERRORS = {
    1: ("UNINITIALIZED", "Uninitialized", "Uninitialized"),
    2: ("INVALID_ARGUMENT", "InvalidArgument", "Invalid Argument"),
    3: ("NOT_SUPPORTED", "NotSupported", "Not Supported"),
    4: ("NO_PERMISSION", "NoPermission", "Insufficient Permissions"),
    5: ("ALREADY_INITIALIZED", "AlreadyInitialized", "Already Initialized"),
    6: ("NOT_FOUND", "NotFound", "Not Found"),
    7: ("INSUFFICIENT_SIZE", "InsufficientSize", "Insufficient Size"),
    8: ("INSUFFICIENT_POWER", "InsufficientPower", "Insufficient External Power"),
    9: ("DRIVER_NOT_LOADED", "DriverNotLoaded", "Driver Not Loaded"),
    10: ("TIMEOUT", "Timeout", "Timeout"),
    11: ("IRQ_ISSUE", "IrqIssue", "Interrupt Request Issue"),
    12: ("LIBRARY_NOT_FOUND", "LibraryNotFound", "NVML Shared Library Not Found"),
    13: ("FUNCTION_NOT_FOUND", "FunctionNotFound", "Function Not Found"),
    14: ("CORRUPTED_INFOROM", "CorruptedInforom", "Corrupted infoROM"),
    15: ("GPU_IS_LOST", "GpuIsLost", "GPU is lost"),
    16: ("RESET_REQUIRED", "ResetRequired", "GPU requires restart"),
    999: ("UNKNOWN", "Unknown", "Unknown Error"),
}
NVML_SUCCESS = 0


class NVMLError(Exception):
    """As NVML's: `value` is its number. The text says more where there is more to say."""

    value = 999

    def __new__(cls, value: int = 0, detail: str = "") -> NVMLError:
        return super().__new__(_CLASSES.get(value, cls) if cls is NVMLError else cls)

    def __init__(self, value: int = 0, detail: str = "") -> None:
        if value:
            self.value = value
        self.detail = detail
        super().__init__(self.value)

    def __str__(self) -> str:
        text = _ERRORS[self.value][2] if self.value in _ERRORS else f"NVML Error {self.value}"
        return f"{text}: {self.detail}" if self.detail else text


_CLASSES: dict[int, type[NVMLError]] = {}
for _value, (_upper, _camel, _) in _ERRORS.items():
    _CLASSES[_value] = type(f"NVMLError_{_camel}", (NVMLError,), {"value": _value})
    globals()[f"NVML_ERROR_{_upper}"] = _value
    globals()[f"NVMLError_{_camel}"] = _CLASSES[_value]

# --- constants ------------------------------------------------------------------------------------

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO = range(4)
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = range(2)
NVML_FEATURE_DISABLED, NVML_FEATURE_ENABLED = range(2)
NVML_VALUE_NOT_AVAILABLE_ulonglong = 2**64 - 1
NVML_VALUE_NOT_AVAILABLE_uint = 2**32 - 1
NVML_INIT_FLAG_NO_GPUS, NVML_INIT_FLAG_NO_ATTACH = 1, 2
nvmlMemory_v2 = 0x02000028


# --- what calls give ------------------------------------------------------------------------------


class _Text(str):
    """pynvml gave bytes before 11.5, and gives text since: programs of both times work."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self)


@dataclass(frozen=True)
class _Handle:
    index: int


@dataclass(frozen=True)
class _Memory:
    total: int
    free: int
    used: int
    reserved: int = 0
    version: int = 2


@dataclass(frozen=True)
class _Utilization:
    gpu: int
    of_memory: int | None
    name: str

    @property
    def memory(self) -> int:
        if self.of_memory is None:
            raise NVMLError(3, f"{self.name} does not tell how busy its memory is")
        return self.of_memory


@dataclass(frozen=True)
class _Pci:
    busId: _Text
    busIdLegacy: _Text
    domain: int
    bus: int
    device: int


_started = 0
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _call(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A call of NVML's: counted in the report, refused before nvmlInit, with NVML's errors."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        note("pynvml")
        if not _started:
            raise NVMLError(1, "call nvmlInit() first")
        try:
            return function(*args, **kwargs)
        except readings.HiddenError as error:
            raise NVMLError(
                4,
                f"device {error} of this machine is hidden from this process, which "
                "reads those that it may use alone; see CUDA_VISIBLE_DEVICES",
            ) from None
        except CausewayError as error:
            raise NVMLError(999, str(error)) from error

    return call


def _target() -> str:
    from causeway.redirect import switch

    return switch.enabled() or "device"


def _read(handle: _Handle) -> Reading:
    if not isinstance(handle, _Handle):
        raise NVMLError(2, f"{handle!r} is no handle of a device")
    return readings.read(handle.index, _target())


def _said(found: Any, what: str, handle: _Handle) -> Any:
    if found is None:
        raise NVMLError(3, f"{_read(handle).name} does not tell {what}")
    return found


# --- the library ----------------------------------------------------------------------------------


def nvmlInit() -> None:
    """Begin; each nvmlInit has its nvmlShutdown. Opens no device."""
    global _started
    note("pynvml")
    try:
        readings.count(_target())
    except CausewayError as error:
        raise NVMLError(9, str(error)) from error
    _started += 1


def nvmlInitWithFlags(flags: int) -> None:
    """As nvmlInit: the flags are for drivers of NVIDIA's."""
    nvmlInit()


nvmlInit_v2 = nvmlInit


@_call
def nvmlShutdown() -> None:
    """End what nvmlInit began."""
    global _started
    _started -= 1


def nvmlErrorString(result: int) -> str:
    """The text of an error's number."""
    return str(NVMLError(result)) if result else "Success"


def nvmlExceptionClass(nvmlErrorCode: int) -> type[NVMLError]:
    """The class of an error's number."""
    if nvmlErrorCode not in _CLASSES:
        raise ValueError(f"nvmlErrorCode {nvmlErrorCode} is not valid")
    return _CLASSES[nvmlErrorCode]


@_call
def nvmlSystemGetDriverVersion() -> str:
    """The version that the device tells of its driver."""
    found = readings.driver(_target())
    if found is None:
        raise NVMLError(3, "the device does not tell its driver's version")
    return _Text(found)


@_call
def nvmlSystemGetNVMLVersion() -> str:
    """Whose library this is."""
    import causeway

    return _Text(f"causeway {causeway.__version__}")


@_call
def nvmlSystemGetCudaDriverVersion() -> int:
    """12060, as torch.version.cuda is 12.6 here."""
    major, minor = readings.CUDA_VERSION.split(".")
    return 1000 * int(major) + 10 * int(minor)


nvmlSystemGetCudaDriverVersion_v2 = nvmlSystemGetCudaDriverVersion

# --- devices --------------------------------------------------------------------------------------


@_call
def nvmlDeviceGetCount() -> int:
    """The devices of this machine, whatever CUDA_VISIBLE_DEVICES says."""
    return readings.count(_target())


@_call
def nvmlDeviceGetHandleByIndex(index: int) -> _Handle:
    """The device of that number on this machine."""
    there = readings.count(_target())
    if not 0 <= int(index) < there:
        raise NVMLError(2, f"there is no device {index}; this machine has {there}")
    return _Handle(int(index))


def _find(text: Any, what: str) -> _Handle:
    wanted = text.decode() if isinstance(text, bytes | _Text) else str(text)
    for index in range(readings.count(_target())):
        try:
            reading = readings.read(index, _target())
        except readings.HiddenError:
            continue
        known = reading.uuid if what == "UUID" else reading.bus
        if known is not None and known.lower().endswith(wanted.lower()):
            return _Handle(index)
    raise NVMLError(6, f"no device that this process can read has the {what} {wanted}")


@_call
def nvmlDeviceGetHandleByUUID(uuid: Any) -> _Handle:
    """The device of a UUID, among those that this process sees."""
    return _find(uuid, "UUID")


@_call
def nvmlDeviceGetHandleByPciBusId(pciBusId: Any) -> _Handle:
    """The device at a bus address, among those that this process sees."""
    return _find(pciBusId, "bus id")


@_call
def nvmlDeviceGetIndex(handle: _Handle) -> int:
    """The device's number on this machine."""
    return _read(handle).index


@_call
def nvmlDeviceGetName(handle: _Handle) -> str:
    """The device's name."""
    return _Text(_read(handle).name)


@_call
def nvmlDeviceGetUUID(handle: _Handle) -> str:
    """ "GPU-" and the device's UUID."""
    return _Text(_said(_read(handle).uuid, "its UUID", handle))


@_call
def nvmlDeviceGetMemoryInfo(handle: _Handle, version: int | None = None) -> _Memory:
    """total, free and used bytes."""
    reading = _read(handle)
    return _Memory(reading.total, reading.free, reading.used)


@_call
def nvmlDeviceGetUtilizationRates(handle: _Handle) -> _Utilization:
    """How busy the device and its memory were, in percent."""
    reading = _read(handle)
    gpu = _said(reading.utilization, "how busy it is", handle)
    return _Utilization(gpu, reading.memory_utilization, reading.name)


@_call
def nvmlDeviceGetTemperature(handle: _Handle, sensor: int = NVML_TEMPERATURE_GPU) -> int:
    """Degrees Celsius."""
    return int(_said(_read(handle).temperature, "its temperature", handle))


@_call
def nvmlDeviceGetPowerUsage(handle: _Handle) -> int:
    """Milliwatts."""
    return int(_said(_read(handle).power, "what it draws", handle))


@_call
def nvmlDeviceGetClockInfo(handle: _Handle, type: int) -> int:
    """MHz now, of the device's cores."""
    clock = None if type == NVML_CLOCK_MEM else _read(handle).clock
    return int(_said(clock, "this clock", handle)) // 1000


@_call
def nvmlDeviceGetMaxClockInfo(handle: _Handle, type: int) -> int:
    """The highest MHz, of the cores or the memory."""
    reading = _read(handle)
    memory = type == NVML_CLOCK_MEM
    clock = reading.highest_memory_clock if memory else reading.highest_clock
    return int(_said(clock, "this clock", handle)) // 1000


@_call
def nvmlDeviceGetMemoryBusWidth(handle: _Handle) -> int:
    """Bits."""
    return int(_said(_read(handle).bus_width, "its bus's width", handle))


@_call
def nvmlDeviceGetCudaComputeCapability(handle: _Handle) -> list[int]:
    """The vendor's numbers, as torch.cuda.get_device_capability has them."""
    return list(_read(handle).capability)


@_call
def nvmlDeviceGetPciInfo(handle: _Handle) -> _Pci:
    """busId and its parts."""
    address = _said(_read(handle).bus, "its bus id", handle)
    domain, bus, device = address.partition(".")[0].split(":")
    parts = (int(domain, 16), int(bus, 16), int(device, 16))
    return _Pci(_Text(address), _Text(address[-12:]), *parts)


nvmlDeviceGetPciInfo_v3 = nvmlDeviceGetPciInfo

# Asked for often, and told by no entry of the contract. Others are made when they are named.
_UNTOLD = (
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetTotalEnergyConsumption",
)


def _untold(name: str) -> Callable[..., Any]:
    @_call
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NVMLError(3, f"Causeway's pynvml has no answer to {name}: no entry of a vendor's "
                        "table tells it")  # fmt: skip

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises NVMLError_NotSupported: devices do not tell it."
    return function


for _name in _UNTOLD:
    globals()[_name] = _untold(_name)


def __getattr__(name: str) -> Any:
    if name.startswith(
        ("nvmlDevice", "nvmlSystem", "nvmlUnit", "nvmlEvent", "nvmlGpu", "nvmlVgpu")
    ):
        globals()[name] = _untold(name)
        return globals()[name]
    raise AttributeError(f"module 'pynvml' (Causeway's) has no attribute {name!r}")
