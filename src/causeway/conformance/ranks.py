"""The processes that ask for level 3, and one answer from what they all say.

Where a rank ends or hangs, all are ended, the check that they were at has failed, and the rest goes
on with new ones.
"""

from __future__ import annotations

import queue
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from causeway.conformance import collectives
from causeway.conformance.chip import Check
from causeway.conformance.workers import WITHOUT_TORCH, Ended, Worker, environment
from causeway.errors import CausewayError

Said = dict[str, Any]


def ask_ranks(
    library: str, settings_of: str, size: int = 2, checks: Sequence[str] = ()
) -> list[Check]:
    """The checks of level 3 (or those named), by `size` ranks (2 or 3), rank r on device r.

    On a chip with fewer devices ranks share one; where its comm.v1 declines that, the checks are
    skipped with its words. Raises CausewayError where the library cannot be opened.
    """
    left = [c for c in collectives.plan() if not checks or c.name in checks]
    done: list[Check] = []
    while left:
        folder = tempfile.mkdtemp(prefix="cw-ranks-")
        ranks = [_Process(library, settings_of, r, size, folder, left) for r in range(size)]
        try:
            while left:
                check = left[0]
                answers = _all_answers(ranks)
                skipped = [a["skipped"] for a in answers if "skipped" in a]
                broken = [a["broken"] for a in answers if "broken" in a]
                if broken:
                    raise CausewayError(f"{library} cannot be asked for comm.v1: {broken[0]}")
                if skipped:
                    return done + [replace(c, state="skipped", came=skipped[0]) for c in left]
                done.append(_together(check, answers))
                left.pop(0)
                if any("gone" in a for a in answers):
                    break
        finally:
            for rank in ranks:
                rank.end()
            shutil.rmtree(folder, ignore_errors=True)
    return done


class _Process:
    """One rank; what it says goes into a queue."""

    def __init__(
        self, library: str, settings_of: str, rank: int, size: int, folder: str, checks: list[Check]
    ) -> None:
        program = WITHOUT_TORCH.format(module="collectives")
        package = str(Path(__file__).parents[1])
        self.worker = Worker([sys.executable, "-c", program, package], environment(None))
        self.worker.tell(
            {
                "library": library,
                "settings_of": settings_of,
                "rank": rank,
                "size": size,
                "folder": folder,
                "checks": [asdict(check) for check in checks],
            }
        )
        self.said: queue.Queue[Said] = queue.Queue()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for said in self.worker.answers():
                self.said.put(said)
        except Ended as why:
            self.said.put({"gone": str(why)})

    def end(self) -> None:
        self.worker.end()
        self._thread.join(5)


def _all_answers(ranks: list[_Process]) -> list[Said]:
    """What each rank says of one check. Once a rank is gone the others have a minute."""
    answers: list[Said] = []
    patience = 240.0
    for rank in ranks:
        try:
            answers.append(rank.said.get(timeout=patience))
        except queue.Empty:
            answers.append({"gone": "it hangs: no answer, and its timeouts are over"})
        if "gone" in answers[-1]:
            patience = 60.0
    return answers


def _together(check: Check, answers: list[Said]) -> Check:
    """One answer: failed where a rank failed, with what the most telling rank says."""
    ends_itself = check.name in collectives.ENDING
    bad: list[tuple[bool, int, str, str]] = []
    skips: list[str] = []
    for r, said in enumerate(answers):
        if "gone" in said:
            if not (ends_itself and r == len(answers) - 1 and "SIGKILL" in said["gone"]):
                bad.append((False, r, "an answer", said["gone"]))
            continue
        one = said["ended"]
        if one["state"] == "failed":
            # Where bytes differ on one rank the others may only have waited for it.
            waited = one["expected"] == "OK"
            bad.append((waited, r, one["expected"], one["came"]))
        elif one["state"] == "skipped":
            skips.append(one["came"])
    if bad:
        _, r, expected, came = min(bad)
        return replace(check, state="failed", expected=expected, came=f"rank {r}: {came}")
    if skips:
        return replace(check, state="skipped", came=skips[0])
    return replace(check, state="passed")
