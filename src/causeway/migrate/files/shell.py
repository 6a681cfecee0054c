"""Launch scripts: variables, options of the launchers and of the program, the vendor's tools.

Only words are changed, by their place: quoting, comments, continued lines and here documents stay.
"""

from __future__ import annotations

import re

from causeway.migrate import flags
from causeway.migrate.files import own_options, requirements, values
from causeway.migrate.files.draft import Draft, NotReadableError, Span, run
from causeway.migrate.files.shell_words import EXPANDED, Command, ShellSyntaxError, Word, read
from causeway.migrate.files.variables import VISIBLE, judge_variable
from causeway.migrate.finding import FileInput, FileResult
from causeway.migrate.settings import Settings

TOOL = "CW607"
SCHEDULER = "CW608"
LAUNCH = "CW612"
FLAG = "CW613"
_TWIN = "CAUSEWAY_VISIBLE_DEVICES"

_TOOLKIT = re.compile(r"/Ascend/|ascend-toolkit|/neuware/")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_EXPORTS = {"declare", "env", "export", "local", "readonly", "setenv", "sudo", "typeset", "unset"}
# Words of these commands are text.
_SPEAKS = {"awk", "cat", "echo", "egrep", "grep", "ls", "printf", "read", "sed", "test"}
_OWN = "Use the vendor's own, if it has one."
_TRACE = "torch.profiler writes a trace on any device."
_TOOLS = {  # what it does, what to do
    "compute-sanitizer": ("checks CUDA kernels", _OWN),
    "cuda-gdb": ("debugs CUDA kernels", _OWN),
    "cuda-memcheck": ("checks CUDA kernels", _OWN),
    "cnmon": ("lists MLUs", "`causeway doctor` lists the devices that torch has."),
    "msprof": ("profiles Ascend's kernels", _TRACE),
    "npu-smi": ("lists NPUs", "`causeway doctor` lists the devices that torch has."),
    "ncu": ("profiles CUDA kernels", _TRACE),
    "nsys": ("traces CUDA", _TRACE),
    "nvcc": ("compiles CUDA", "See what the report says of the .cu files."),
    "nvidia-docker": ("hands GPUs to a container", "docker run --device=... hands over others."),
    "nvidia-smi": ("lists GPUs", "`causeway doctor` lists the devices that torch has."),
    "nvprof": ("profiles CUDA kernels", _TRACE),
}
_DIRECTIVE = re.compile(
    r"^#(?:SBATCH|PBS|BSUB|\$)[^\n]*?(?P<what>--gres[= ]gpu\S*|--gpus\S*(?:[= ]\S+)?|-gpu\b[^\n]*"
    r"|-G\s*\d+|ngpus=\d+|gpus=\d+|-l\s*gpu=\S+)",
    re.MULTILINE,
)
_SCHEDULER_OPTION = re.compile(r"--(?:gres=gpu\S*|gpus(?:-per-\w+)?(?:=\S*)?)\Z")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*\Z")
_OVERRIDE = re.compile(r"(?P<name>[-+~]{0,2}[A-Za-z_][\w./-]*)=")


def convert(file: FileInput, settings: Settings) -> FileResult:
    """A shell script."""
    return run(file, settings, convert_part)


def convert_part(draft: Draft, start: int = 0, end: int | None = None, *, indent: int = 0) -> None:
    """Convert the script in this part of the text, of which `indent` columns are not the script's.
    Raises NotReadableError where it is none.
    """
    try:
        script = read(draft.text, start, end, indent=indent)
    except ShellSyntaxError as error:
        raise NotReadableError(str(error), error.position) from None
    for variable in script.variables:
        judge_variable(draft, variable.name, (variable.start, variable.end), use=True)
    for command in script.commands:
        _command(draft, command)
    for found in _DIRECTIVE.finditer(draft.text, start, len(draft.text) if end is None else end):
        _scheduler(draft, found.group("what"), found.span("what"))


def _command(draft: Draft, command: Command) -> None:
    for word in command.assignments:
        _assignment(draft, word)
    for array in command.arrays:
        _options(draft, array[1:], launcher=True)
    if not command.words or command.name in _SPEAKS or command.words[0].text in ("[", "[["):
        return
    if command.name in _EXPORTS:
        _exports(draft, command)
    if command.name in ("bash", "sh", "zsh", "eval"):
        _nested(draft, command)
    for word in command.words:
        if command.name in ("source", ".") and _TOOLKIT.search(word.text):
            draft.say(
                TOOL, "manual", (word.start, word.end), "the environment of a vendor's toolkit",
                "Leave it out where the host has none.", api=word.text,
            )  # fmt: skip
        if word.text == "torch_npu_run" and draft.settings.target != "npu":
            draft.change(LAUNCH, (word.start, word.end), "torchrun", "torchrun serves any device",
                         "It takes the same options.", api=word.text)  # fmt: skip
        if word.text == "torch.distributed.launch":
            draft.say(LAUNCH, "portable", (word.start, word.end), f"{word.text} serves any device",
                      api=word.text)  # fmt: skip
    _tools(draft, command)
    _packages(draft, command)
    _options(draft, command.words, launcher=_is_launcher(command))


def _is_launcher(command: Command) -> bool:
    for word in command.words:
        if word.text.rpartition("/")[2] == "torchrun":
            return True
        if word.text in ("torch.distributed.launch", "torch.distributed.run"):
            return True
    return False


def _assignment(draft: Draft, word: Word) -> None:
    """NAME=value before a command, or of `export`."""
    found = _ASSIGNMENT.match(word.text)
    span = word.span(*found.span(1)) if found else None
    if found is None or span is None:
        return
    name, begin = found.group(1), found.end()
    if name == "CUDA_VISIBLE_DEVICES" and draft.target is None:
        _visible(draft, word)
        return
    if judge_variable(draft, name, span, use=False):
        return
    if re.search(r"\s-{1,2}[A-Za-z]|^-{1,2}[A-Za-z]", word.text[begin:]):  # ARGS="--a b --c d"
        _options(draft, word.split(begin), launcher=True)
    else:
        _value(draft, name, word, begin, launcher=False)


def _visible(draft: Draft, word: Word) -> None:
    """CUDA_VISIBLE_DEVICES stays, since CUDA reads it; Causeway's devices have a twin of it."""
    written = draft.text[word.start : word.end]
    name = "CUDA_VISIBLE_DEVICES"
    if _TWIN in draft.text:
        draft.say(VISIBLE, "portable", (word.start, word.end), f"{_TWIN} is set too", api=name)
    elif "$(" in written or "`" in written:  # it would be run twice
        draft.say(VISIBLE, "manual", (word.start, word.end), f"{name} chooses devices of CUDA only",
                  api=name)  # fmt: skip
    else:
        draft.change_unsafely(
            VISIBLE, (word.start, word.end), f"{written} {written.replace(name, _TWIN, 1)}",
            f"{name} chooses devices of CUDA only",
            f"{_TWIN} does it for a device that Causeway brings; ASCEND_RT_VISIBLE_DEVICES, "
            "MLU_VISIBLE_DEVICES for those of other vendors' own packages (`--target NAME`).",
            api=name,
        )  # fmt: skip


def _exports(draft: Draft, command: Command) -> None:
    for word in command.words[1:]:
        if _ASSIGNMENT.match(word.text):
            _assignment(draft, word)
        elif re.fullmatch(r"[A-Za-z_]\w*", word.text):
            span = word.span(0, len(word.text))
            if span and command.name in ("export", "setenv", "unset", "declare", "readonly"):
                judge_variable(draft, word.text, span, use=command.name != "setenv")


def _nested(draft: Draft, command: Command) -> None:
    """bash -c '...': the quoted words are a script, where nothing in them is escaped."""
    previous = ""
    for word in command.words[1:]:
        span = word.span(0, len(word.text))
        if span and (previous in ("-c", "-lc", "-ic") or command.name == "eval"):
            convert_part(draft, *span)
        previous = word.text


def _tools(draft: Draft, command: Command) -> None:
    for position, word in enumerate(command.words):
        name = word.text.rpartition("/")[2]
        if name not in _TOOLS or (position and command.name in ("apt", "apt-get", "pip", "conda")):
            continue
        begin = len(word.text) - len(name)
        span = word.span(begin, len(word.text)) or (word.start, word.end)
        new = draft.target.tools.get(name) if draft.target else None
        if new and position == len(command.words) - 1 and begin == 0:
            draft.change(TOOL, span, new, f"{name} {_TOOLS[name][0]}: the target's tool", api=name)
            continue
        tip = f"On the target: {new}; its options are others." if new else _TOOLS[name][1]
        draft.say(TOOL, "manual", span, f"{name} {_TOOLS[name][0]}", tip, api=name)
    if command.name in ("docker", "podman", "nvidia-docker"):
        for word in command.words:
            if re.match(r"--gpus\b|--runtime=nvidia\Z", word.text):
                tip = "Hand the device over with --device and the vendor's runtime."
                draft.say(SCHEDULER, "manual", (word.start, word.end),
                          f"{word.text} hands over NVIDIA's GPUs", tip, api=word.text)  # fmt: skip
    elif command.name in ("srun", "salloc", "sbatch", "bsub", "qsub"):
        for word in command.words:
            if _SCHEDULER_OPTION.match(word.text):
                _scheduler(draft, word.text, (word.start, word.end))
    elif command.name in ("module", "ml"):
        for word in command.words:
            if re.match(r"(?:cuda|cudnn|nccl)\b", word.text, re.IGNORECASE):
                draft.say(TOOL, "manual", (word.start, word.end), f"module {word.text} is CUDA's",
                          "Load the vendor's toolkit in its place.", api=word.text)  # fmt: skip


def _scheduler(draft: Draft, what: str, span: Span) -> None:
    draft.say(SCHEDULER, "manual", span, f"{what} asks the scheduler for GPUs", api=what)


def _packages(draft: Draft, command: Command) -> None:
    words = [word.text for word in command.words]
    if "install" not in words:
        return
    after = command.words[words.index("install") + 1 :]
    if command.name in ("conda", "mamba", "micromamba"):
        for word in after:
            requirements.conda(draft, word.text, (word.start, word.end), word.span)
    elif re.match(r"(?:pip|uv|python)[\d.]*\Z", command.name) or "pip" in words:
        requirements.arguments(draft, after)


def _options(draft: Draft, words: list[Word], *, launcher: bool) -> None:
    """`--name value`, `--name=value` and `a.b=value`."""
    own: frozenset[str] = frozenset()
    for position, word in enumerate(words):
        if draft.target is None and word.text.endswith(".py"):
            own = own_options.of_script(draft.options, draft.path, word.text)
        _flag(draft, word)
        if own and _left_out(draft, own, words, position):
            continue
        found = _OVERRIDE.match(word.text)
        if found:
            name = found.group("name")
            span = word.span(*found.span("name"))
            if position and span and judge_variable(draft, name, span, use=False):
                continue
            _value(draft, name, word, found.end(), launcher=launcher)
        elif _OPTION.match(word.text) and position + 1 < len(words):
            following = words[position + 1]
            if not following.text.startswith("-"):
                _value(draft, word.text, following, 0, launcher=launcher)
            if word.text in ("-x", "-e", "--env"):
                span = following.span(0, len(following.text))
                if span:
                    judge_variable(draft, following.text, span, use=True)


def _flag(draft: Draft, word: Word) -> None:
    """An option of the tree's own programs that is named after CUDA."""
    name = word.text.partition("=")[0]
    span = word.span(0, len(name)) if name in draft.flags and draft.target is None else None
    if span is None:
        return
    new = flags.renamed(name)
    if draft.settings.rename_flags:
        draft.change(FLAG, span, new, "the program calls the option so", api=name)
    else:
        draft.say(FLAG, "portable", span, f"{name} speaks of CUDA, and is for any device",
                  f"`--rename-flags` writes {new}, in the program too.", api=name)  # fmt: skip


def _left_out(draft: Draft, own: frozenset[str], words: list[Word], position: int) -> bool:
    """Take away an option that the script, once converted, sets to the device's own."""
    word = words[position]
    name, equals, value = word.text.partition("=")
    end = word.end
    if not equals and position + 1 < len(words):
        value, end = words[position + 1].text, words[position + 1].end
    if draft.for_cuda and value not in ("cuda", "nccl"):
        return False  # a script for another system, beside one for CUDA
    if name not in own or value not in own_options.WORDS:
        return False
    if sum(w.text.partition("=")[0] == name for w in words) > 1:  # the last one counts
        return False
    rule = values.DEVICE if value in own_options.DEVICES else values.BACKEND
    draft.change(
        rule, (words[position - 1].end, end), "",
        f"{name} is left out: the script's default is the device's own",
        "On the device that it named the default means the same.", api=name,
    )  # fmt: skip
    return True


def _value(draft: Draft, name: str, word: Word, begin: int, *, launcher: bool) -> None:
    value = word.text[begin:]
    if not value or EXPANDED in value:
        return
    lightning = bool(re.match(r"[-+~]*(?:\w+\.)*trainer\.", name))
    values.judge(
        draft,
        values.Named(
            name, value, word.span(begin, len(word.text)), (word.start, word.end),
            lightning=lightning, launcher=launcher,
        ),
    )  # fmt: skip
