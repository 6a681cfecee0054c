"""The settings of a conversion: defaults, pyproject.toml, command line."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causeway.errors import ConfigError

_URL = re.compile(r"(?:https?|file)://\S+")


@dataclass(frozen=True)
class Settings:
    """How to convert. Frozen: results carry the settings that they were made with."""

    target: str = "portable"  # or a vendor's device name: npu, mlu, …
    unsafe: bool = False  # apply rules that may change what a program does
    about_cuda: bool = False  # convert parts that are about CUDA itself too, such as its checks
    exclude: tuple[str, ...] = ()  # patterns as in .gitignore, on top of .gitignore
    select: tuple[str, ...] = ()  # rule codes; empty: all
    ignore: tuple[str, ...] = ()  # rule codes
    jobs: int = 0  # processes; 0: as many as there are cores
    rename_flags: bool = False  # --no-cuda becomes --no-accel, in the whole tree
    fold_branches: bool = False  # branches of MPS and XPU behind the accelerator's go
    rules_url: str = ""  # where a team keeps the rules' pages: "https://…/{code}.html", for SARIF

    def wants(self, code: str) -> bool:
        """Whether the rule `code` is selected. A prefix selects its rules: "CW1"."""
        if any(code.startswith(c) for c in self.ignore):
            return False
        return not self.select or any(code.startswith(c) for c in self.select)

    def checked(self) -> Settings:
        """These settings; a target that is no name, or a code that is no rule's, is a
        ConfigError.
        """
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.target) or self.target in ("cuda", "cpu"):
            raise ConfigError(
                f'target must be "portable" or the name of a device, such as npu: {self.target!r}'
            )
        if self.rules_url and not (_URL.match(self.rules_url) and "{code}" in self.rules_url):
            raise ConfigError(
                "rules_url must be an address with {code} where the rule goes, such as "
                f"https://example.org/rules/{{code}}.html: {self.rules_url!r}"
            )
        for code in (*self.select, *self.ignore):
            if not re.fullmatch(r"CW\d{0,3}", code):
                raise ConfigError(f"{code!r} is no code of a rule, such as CW101, or its beginning")
        return self


def from_pyproject(start: Path) -> dict[str, Any]:
    """`[tool.causeway.migrate]` of the nearest pyproject.toml at or above `start`, checked; {} if
    there is none. An unknown key, a wrong type or broken TOML raises ConfigError.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} is no TOML: {error}") from None
        table = tables.get("tool", {}).get("causeway", {}).get("migrate", {})
        return {name: _checked(file, name, value) for name, value in table.items()}
    return {}


def _checked(file: Path, name: str, value: Any) -> Any:
    defaults = {f.name: f.default for f in dataclasses.fields(Settings)}
    if name not in defaults:
        raise ConfigError(
            f"{file}: [tool.causeway.migrate] has no setting {name!r}; "
            f"it takes {', '.join(defaults)}"
        )
    default = defaults[name]
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return tuple(value)
        wanted = "a list of strings"
    elif type(value) is type(default):
        return value
    else:
        wanted = {str: "a string", bool: "true or false", int: "a whole number"}[type(default)]
    raise ConfigError(f"{file}: {name} of [tool.causeway.migrate] must be {wanted}: {value!r}")
