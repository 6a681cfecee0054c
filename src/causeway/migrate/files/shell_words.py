"""The words of a shell script, each with its place, so that one can be changed and nothing else.

A reader of bash's and sh's lexical rules: quotes, escapes, comments, continued lines, here
documents, `$(...)`, backticks, arrays. It knows no more of the grammar than where a simple command
begins and ends; control words are stepped over. What it does not read it leaves alone: the bodies
of here documents, arithmetic, patterns. A quote that is never closed raises ShellSyntaxError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Stands in a word's text for what only the shell knows: $x, ${x}, $(x).
EXPANDED = "\0"
_CONTROL = {
    "!", "{", "}", "do", "done", "elif", "else", "esac", "fi", "if", "then", "time", "until",
    "while",
}  # fmt: skip
_ASSIGNED = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
_ARRAY = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=\Z")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")


class ShellSyntaxError(ValueError):
    """Where a script cannot be read: `position` is the character that began what never ended."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass
class Word:
    """One word: `text` is what the shell would see, EXPANDED where it would put a value in.

    `at[i]` is the place in the script of `text[i]`, so `span(i, j)` says which characters of the
    script are `text[i:j]`, or None where quotes or escapes stand between them.
    """

    start: int
    end: int = 0
    text: str = ""
    at: list[int] = field(default_factory=list)

    def add(self, char: str, position: int) -> None:
        self.text += char
        self.at.append(position)

    def span(self, begin: int, end: int) -> tuple[int, int] | None:
        """The places in the script of `text[begin:end]`; None where they are not side by side."""
        if begin >= end or EXPANDED in self.text[begin:end]:
            return None
        first, last = self.at[begin], self.at[end - 1]
        return (first, last + 1) if last - first == end - 1 - begin else None

    def part(self, begin: int, end: int) -> Word:
        """The word that `text[begin:end]` would be alone."""
        piece = Word(self.at[begin] if begin < end else self.end, self.end)
        piece.text, piece.at = self.text[begin:end], self.at[begin:end]
        if piece.at:
            piece.end = piece.at[-1] + 1
        return piece

    def split(self, begin: int = 0) -> list[Word]:
        """The words that the text from `begin` on would be if it were split at white space."""
        return [
            self.part(found.start() + begin, found.end() + begin)
            for found in re.finditer(r"\S+", self.text[begin:])
        ]


@dataclass
class Variable:
    """A use of a variable: `$NAME` or `${NAME...}`; `start` and `end` are those of the name."""

    name: str
    start: int
    end: int


@dataclass
class Command:
    """A simple command: assignments before it, its words, arrays it assigns."""

    assignments: list[Word] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    arrays: list[list[Word]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The program, without its folder; empty where the command only assigns."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""


@dataclass
class Heredoc:
    """The body of a here document, which is left as it is, and the command that reads it."""

    command: Command
    start: int
    end: int


@dataclass
class Script:
    """What a script is made of, in the order of its text."""

    commands: list[Command] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    heredocs: list[Heredoc] = field(default_factory=list)


def read(text: str, start: int = 0, end: int | None = None, *, indent: int = 0) -> Script:
    """Read the script in `text[start:end]`; places count from the beginning of `text`. `indent`:
    columns that are no part of the script, where it stands in a file of another sort.

    Raises ShellSyntaxError where a quote or a parenthesis is never closed.
    """
    script = Script()
    reader = _Reader(text, len(text) if end is None else end, script, indent)
    reader.commands(start, None)
    return script


@dataclass
class _Pending:
    delimiter: str
    tabs: bool
    command: Command


class _Reader:
    def __init__(self, text: str, end: int, script: Script, indent: int = 0) -> None:
        self.text, self.end, self.script, self.indent = text, end, script, indent
        self.pending: list[_Pending] = []

    def peek(self, i: int) -> str:
        return self.text[i] if i < self.end else ""

    def commands(self, i: int, closer: str | None) -> int:
        """Read commands from `i` to `closer`, which is at the place returned."""
        opened, depth, cases = i, 0, 0
        command = Command()
        while i < self.end:
            char = self.text[i]
            if char in " \t\r":
                i += 1
            elif char == "\\" and self.peek(i + 1) in ("\n", "\r"):
                i += 3 if self.text.startswith("\r\n", i + 1) else 2
            elif char == "\n":
                command = self._finish(command)
                i = self._bodies(i + 1)
            elif char == "#":
                i = self._line_end(i)
            elif char == ")" and closer == ")" and depth == 0 and not self._in_case(command, cases):
                self._finish(command)
                return i
            elif self.text.startswith("((", i) and not command.words:
                command = self._finish(command)
                i = self._arithmetic(i)
            elif char in ";&|()":
                # `&>` and `>&` are redirections, `a)` ends a pattern of case.
                if char == "&" and self.peek(i + 1) == ">":
                    i = self._redirect(i + 1, command)
                    continue
                cases += command.name == "case"
                depth += (char == "(") - (char == ")" and depth > 0)
                command = self._finish(command)
                i += 1
            elif char in "<>":
                i = self._redirect(i, command)
            else:
                begun = len(command.words)
                i = self._word_of(i, command)
                cases -= begun == 0 and self.text[i - 4 : i] == "esac"
        self._finish(command)
        if closer is not None:
            raise ShellSyntaxError(f"{closer!r} is missing", opened)
        return i

    def _in_case(self, command: Command, cases: int) -> bool:
        """Whether a ')' ends a pattern of `case`."""
        return cases > 0 or command.name == "case"

    def _finish(self, command: Command) -> Command:
        if command.assignments or command.words or command.arrays:
            self.script.commands.append(command)
        return Command()

    def _word_of(self, i: int, command: Command) -> int:
        word = self.word(i)
        i = word.end
        if word.text.isdigit() and self.peek(i) in ("<", ">"):  # 2>&1
            return i
        assigns = not command.words and _ASSIGNED.match(word.text)
        if self.peek(i) == "(" and _ARRAY.match(word.text):
            elements: list[Word] = []
            i = self._array(i + 1, elements)
            command.arrays.append([word, *elements])
        elif assigns:
            command.assignments.append(word)
        elif command.words or word.text not in _CONTROL or word.end - word.start != len(word.text):
            command.words.append(word)
        return i

    def _array(self, i: int, elements: list[Word]) -> int:
        opened = i
        while i < self.end:
            char = self.text[i]
            if char == ")":
                return i + 1
            if char in " \t\r\n":
                i += 1
            elif char == "\\" and self.peek(i + 1) in ("\n", "\r"):
                i += 2
            elif char == "#":
                i = self._line_end(i)
            elif char in ";&|<>(":
                i += 1
            else:
                elements.append(self.word(i))
                i = elements[-1].end
        raise ShellSyntaxError("an array is never closed", opened)

    def _redirect(self, i: int, command: Command) -> int:
        if self.peek(i + 1) == "(":  # <(command)
            return self.commands(i + 2, ")") + 1
        if self.text.startswith("<<<", i):
            i += 3
        elif self.text.startswith("<<", i):
            tabs = self.peek(i + 2) == "-"
            i = self._blanks(i + 2 + tabs)
            word = self.word(i)
            self.pending.append(_Pending(word.text, tabs, command))
            return word.end
        else:
            i += 1
            while self.peek(i) and self.peek(i) in "<>&|":
                i += 1
        i = self._blanks(i)
        if self.peek(i) in ("<", ">") and self.peek(i + 1) == "(":  # < <(command)
            return self.commands(i + 2, ")") + 1
        return self.word(i).end if self.peek(i) not in ("", *"\n;&|()<>") else i

    def _blanks(self, i: int) -> int:
        while self.peek(i) and self.peek(i) in " \t":
            i += 1
        return i

    def _line_end(self, i: int) -> int:
        found = self.text.find("\n", i, self.end)
        return self.end if found < 0 else found

    def _bodies(self, i: int) -> int:
        for pending in self.pending:
            start = i
            while i < self.end:
                stop = self._line_end(i)
                line = self.text[min(i + self.indent, stop) : stop].rstrip("\r")
                if (line.lstrip("\t") if pending.tabs else line) == pending.delimiter:
                    self.script.heredocs.append(Heredoc(pending.command, start, i))
                    i = stop
                    break
                i = stop + 1
            else:
                # bash takes the rest of the file, with a warning.
                self.script.heredocs.append(Heredoc(pending.command, start, self.end))
                i = self.end
        self.pending = []
        return i

    def _arithmetic(self, i: int) -> int:
        opened, depth = i, 0
        while i < self.end:
            depth += (self.text[i] == "(") - (self.text[i] == ")")
            i += 1
            if depth == 0:
                return i
        raise ShellSyntaxError("'((' is never closed", opened)

    def word(self, i: int) -> Word:
        """The word that begins at `i`; its `end` is behind it."""
        word = Word(i)
        while i < self.end and self.text[i] not in " \t\r\n;&|<>()":
            char = self.text[i]
            if char == "\\":
                if self.peek(i + 1) == "\n":
                    i += 2
                    continue
                if i + 1 < self.end:
                    word.add(self.text[i + 1], i + 1)
                i += 2
            elif char == "'":
                close = self.text.find("'", i + 1, self.end)
                if close < 0:
                    raise ShellSyntaxError("a single quote is never closed", i)
                for position in range(i + 1, close):
                    word.add(self.text[position], position)
                i = close + 1
            elif char == '"':
                i = self._double(i, word)
            elif char == "$":
                i = self._expansion(i, word)
            elif char == "`":
                i = self._backticks(i, word)
            elif char in "@?+*!" and self.peek(i + 1) == "(":  # extglob
                word.add(EXPANDED, i)
                i = self._arithmetic(i + 1)
            else:
                word.add(char, i)
                i += 1
        word.end = min(i, self.end)
        if word.end == word.start:
            raise ShellSyntaxError("a word is expected", word.start)
        return word

    def _double(self, i: int, word: Word) -> int:
        opened = i
        i += 1
        while i < self.end:
            char = self.text[i]
            if char == '"':
                return i + 1
            if char == "\\" and self.peek(i + 1) in ("$", "`", '"', "\\", "\n"):
                if self.text[i + 1] != "\n":
                    word.add(self.text[i + 1], i + 1)
                i += 2
            elif char == "$":
                i = self._expansion(i, word)
            elif char == "`":
                i = self._backticks(i, word)
            else:
                word.add(char, i)
                i += 1
        raise ShellSyntaxError("a double quote is never closed", opened)

    def _backticks(self, i: int, word: Word) -> int:
        word.add(EXPANDED, i)
        close = i + 1
        while close < self.end and self.text[close] != "`":
            close += 2 if self.text[close] == "\\" else 1
        if close >= self.end:
            raise ShellSyntaxError("a backtick is never closed", i)
        inner = _Reader(self.text, close, self.script)
        inner.commands(i + 1, None)
        return close + 1

    def _expansion(self, i: int, word: Word) -> int:
        following = self.peek(i + 1)
        if self.text.startswith("$((", i):
            word.add(EXPANDED, i)
            return self._arithmetic(i + 1)
        if following == "(":
            word.add(EXPANDED, i)
            waiting, self.pending = self.pending, []
            i = self.commands(i + 2, ")") + 1
            self.pending = waiting
            return i
        if following == "{":
            word.add(EXPANDED, i)
            return self._braces(i)
        if following == "'":  # $'a\n': escapes of its own
            word.add(EXPANDED, i)
            i += 2
            while i < self.end and self.text[i] != "'":
                i += 2 if self.text[i] == "\\" else 1
            if i >= self.end:
                raise ShellSyntaxError("a single quote is never closed", word.start)
            return i + 1
        if following == '"':
            return i + 1
        found = _NAME.match(self.text, i + 1, self.end)
        if found is None:
            word.add("$", i)
            return i + 1
        word.add(EXPANDED, i)
        self.script.variables.append(Variable(found.group(), found.start(), found.end()))
        return found.end()

    def _braces(self, i: int) -> int:
        opened = i
        found = re.compile(r"\$\{[#!]?([A-Za-z_]\w*)").match(self.text, i, self.end)
        if found:
            self.script.variables.append(Variable(found.group(1), found.start(1), found.end(1)))
        i = found.end() if found else i + 2
        ignored = Word(i)
        while i < self.end:
            char = self.text[i]
            if char == "}":
                return i + 1
            if char == "\\":
                i += 2
            elif char == '"':
                i = self._double(i, ignored)
            elif char == "'":
                # Inside double quotes this is a character and no quote: not taken to open one.
                close = self.text.find("'", i + 1, self.end)
                brace = self.text.find("}", i + 1, self.end)
                i = close + 1 if -1 < close < brace else i + 1
            elif char == "$":
                i = self._expansion(i, ignored)
            elif char == "`":
                i = self._backticks(i, ignored)
            else:
                i += 1
        raise ShellSyntaxError("'${' is never closed", opened)
