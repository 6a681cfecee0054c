"""Converters of all that is not Python: scripts, configurations, notebooks, packages, CUDA.

`PATTERNS` says which file goes to which. Each reads a file with a parser that knows places, and
changes it at places (`draft.py`); `rules.py` has what the codes CW6xx mean.
"""

from __future__ import annotations

_HERE = "causeway.migrate.files"

# Names go before suffixes, and the first name that fits is taken.
PATTERNS: dict[str, str] = {
    "setup.py": f"{_HERE}.setup_file:convert",
    "requirements*.txt": f"{_HERE}.requirements:convert",
    "requirements/*.txt": f"{_HERE}.requirements:convert",
    "*requirements.txt": f"{_HERE}.requirements:convert",
    "constraints*.txt": f"{_HERE}.requirements:convert",
    "requirements*.in": f"{_HERE}.requirements:convert",
    "Dockerfile*": f"{_HERE}.docker_file:convert",
    "*.dockerfile": f"{_HERE}.docker_file:convert",
    "Containerfile*": f"{_HERE}.docker_file:convert",
    "README*": f"{_HERE}.readme:convert",
    ".sh": f"{_HERE}.shell:convert",
    ".bash": f"{_HERE}.shell:convert",
    ".slurm": f"{_HERE}.shell:convert",
    ".sbatch": f"{_HERE}.shell:convert",
    ".yaml": f"{_HERE}.yaml_file:convert",
    ".yml": f"{_HERE}.yaml_file:convert",
    ".json": f"{_HERE}.json_file:convert",
    ".toml": f"{_HERE}.ini_file:convert_toml",
    ".ini": f"{_HERE}.ini_file:convert_ini",
    ".cfg": f"{_HERE}.ini_file:convert_ini",
    ".ipynb": f"{_HERE}.notebook:convert",
    ".cu": f"{_HERE}.cuda_source:convert",
    ".cuh": f"{_HERE}.cuda_source:convert",
    ".cpp": f"{_HERE}.cuda_source:convert_host",
    ".cc": f"{_HERE}.cuda_source:convert_host",
    ".cxx": f"{_HERE}.cuda_source:convert_host",
    ".h": f"{_HERE}.cuda_source:convert_host",
    ".hpp": f"{_HERE}.cuda_source:convert_host",
}
