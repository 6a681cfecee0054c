"""What `quantize_dynamic` is asked for, checked: a name that does not exist is an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from causeway.errors import ConfigError
from causeway.quant.calibrate import METHODS

DTYPES = ("int8", "int16")
FORMATS = ("rgb", "bgr", "rgba", "argb", "bgra", "abgr")


@dataclass(frozen=True)
class Settings:
    """The keys of `qconfig_spec`, with their defaults."""

    iteration: int = 1
    use_avg: bool = False
    data_scale: float = 1.0
    mean: tuple[float, ...] = field(default=())
    std: tuple[float, ...] = field(default=())
    firstconv: bool = False
    per_channel: bool = False
    method: str = "minmax"
    percentile: float = 99.99
    symmetric: bool = True
    fixed_point: bool = False
    input_format: str | None = None
    layout: str = "NCHW"
    dtype: str = "int8"

    @property
    def bits(self) -> int:
        return 8 if self.dtype == "int8" else 16

    @property
    def levels(self) -> int:
        """The largest integer of a symmetric format."""
        return int(2 ** (self.bits - 1) - 1)


def nearest(name: str, known: Any) -> str:
    """' Did you mean ...?', or nothing."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], 1)
    return f" Did you mean {close[0]!r}?" if close else ""


def one_of(what: str, value: Any, known: Any) -> None:
    if value not in known:
        raise ConfigError(
            f"{what} is one of {', '.join(map(str, known))}, not {value!r}.{nearest(value, known)}"
        )


def read(spec: Mapping[str, Any] | None, dtype: str | None) -> Settings:
    """The settings of a `qconfig_spec` and a `dtype`.

    Raises:
        ConfigError: a key that does not exist, or a value that it does not take.
    """
    one_of("dtype", "int8" if dtype is None else dtype, DTYPES)
    known = [f.name for f in fields(Settings) if f.name != "dtype"]
    given: dict[str, Any] = dict(spec or {})
    for key in given:
        if key not in known:
            raise ConfigError(f"qconfig_spec has no key {key!r}.{nearest(key, known)}")
    for key in ("mean", "std"):
        if key in given:
            given[key] = _numbers(key, given[key])
    settings = replace(Settings(), **given, dtype=dtype or "int8")
    for key, value in given.items():
        wanted = type(getattr(Settings(), key))
        if wanted is float:
            wanted = (int, float)  # type: ignore[assignment]
        if key not in ("input_format",) and (
            not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)
        ):
            raise ConfigError(f"qconfig_spec: {key} is {value!r}, which it does not take")
    one_of("qconfig_spec: method", settings.method, METHODS)
    one_of("qconfig_spec: layout", settings.layout, ("NCHW", "NHWC"))
    if settings.input_format is not None:
        one_of("qconfig_spec: input_format", settings.input_format, FORMATS)
    if settings.iteration < 1:
        raise ConfigError(f"qconfig_spec: iteration is at least 1, not {settings.iteration}")
    if not settings.data_scale > 0:
        raise ConfigError(f"qconfig_spec: data_scale is above 0, not {settings.data_scale}")
    if not 50 <= settings.percentile <= 100:
        raise ConfigError(f"qconfig_spec: percentile is 50 to 100, not {settings.percentile}")
    if settings.use_avg and settings.method != "minmax":
        raise ConfigError(f"qconfig_spec: use_avg goes with method minmax, not {settings.method}")
    if any(not 0 <= m <= 1 for m in settings.mean) or any(not 0 < s <= 1 for s in settings.std):
        raise ConfigError(
            "qconfig_spec: mean is within 0 to 1 and std above 0 and up to 1, of pixels from 0 to "
            f"1, but they are {settings.mean} and {settings.std}"
        )
    if not settings.firstconv and (settings.input_format or settings.layout != "NCHW"):
        raise ConfigError("qconfig_spec: input_format and layout are of images: firstconv=True")
    return settings


def _numbers(key: str, value: Any) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in value)
    except (TypeError, ValueError):
        raise ConfigError(
            f"qconfig_spec: {key} is a number for each channel, not {value!r}"
        ) from None
