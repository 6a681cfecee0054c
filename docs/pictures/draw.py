"""The pictures of the docs: `python docs/pictures/draw.py` writes them next to itself.

Each has a white ground, so that it reads the same on a light and a dark page. Text is text, for search and for
readers who do not see; a box is wide enough for its text in any usual font, which `Picture.box` checks.
"""

from __future__ import annotations

import html
from pathlib import Path

HERE = Path(__file__).parent
INK, SOFT, LINE = "#1f2933", "#52606d", "#9aa5b1"
BLUE, GREEN, GOLD, VIOLET, RED, GREY = (
    "#dbeafe", "#dcfce7", "#fef3c7", "#ede9fe", "#fee2e2", "#f1f5f9",
)  # fmt: skip
WIDE = 0.53  # of a letter on the average, in parts of its size, in the widest of the usual fonts


class Picture:
    """Boxes, lines and text, put together as SVG."""

    def __init__(self, title: str, said: str, width: int, height: int) -> None:
        self.title, self.said, self.width, self.height = title, said, width, height
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, size: float = 14, *, fill: str = INK,
        anchor: str = "start", bold: bool = False,
    ) -> None:  # fmt: skip
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}" text-anchor="{anchor}"'
            f"{weight}>{html.escape(words)}</text>"
        )

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, title: str = "",
        *lines: str, size: float = 14, centre: bool = False,
    ) -> None:  # fmt: skip
        """A box with a title in bold and lines below it."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" fill="{fill}"'
            f' stroke="{LINE}"/>'
        )
        for words, big in [(title, size), *((line, size - 2) for line in lines)]:
            if len(words) * big * WIDE > width - 16:
                raise ValueError(f"{self.title}: no room for {words!r}")
        step = size + 4
        top = y + height / 2 - step * len(lines) / 2 + size * 0.36
        at, anchor = (x + width / 2, "middle") if centre else (x + 14, "start")
        if title:
            self.text(at, top, title, size, bold=True, anchor=anchor)
        for i, line in enumerate(lines, 1):
            self.text(at, top + i * step, line, size - 2, fill=SOFT, anchor=anchor)

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, words: str = "", *, dashed: bool = False
    ) -> None:
        """A line with a head; words stand above a level one and right of any other."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{SOFT}"'
            f' stroke-width="1.6"{dash} marker-end="url(#head)"/>'
        )
        if words and y1 == y2:
            self.text((x1 + x2) / 2, y1 - 6, words, 12, fill=SOFT, anchor="middle")
        elif words:
            self.text((x1 + x2) / 2 + 8, (y1 + y2) / 2 + 4, words, 12, fill=SOFT)

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{LINE}"'
            ' stroke-dasharray="3 4"/>'
        )

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' width="{self.width}" height="{self.height}" role="img"'
            ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
            f"<title>{html.escape(self.title)}</title>\n<desc>{html.escape(self.said)}</desc>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"'
            f' markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="{SOFT}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def layers() -> Picture:
    p = Picture(
        "The layers of Causeway",
        "User code on stock torch, the Python package, the C++ core, the contract abi.h, and the vendors' libraries.",
        860, 470,
    )  # fmt: skip
    p.box(20, 20, 820, 60, GREY, "Your program, and libraries as they are",
          'import torch; x.to("sim"); torch.sim.*; torch.accelerator.*; torchrun; transformers')  # fmt: skip
    p.box(20, 92, 530, 44, GREY, "torch from PyPI: dispatcher, autograd, Inductor")
    p.box(560, 92, 280, 44, GREY, "C, C++, or Python without torch")
    p.box(20, 148, 530, 60, BLUE, "src/causeway, Python",
          "device module, settings, policy, ledger, compare, migrate, the command")  # fmt: skip
    p.box(20, 220, 530, 60, BLUE, "csrc, C++, built for each minor release of torch",
          "devices, streams, memory; the path of every operator; portable kernels")  # fmt: skip
    p.box(
        560,
        148,
        280,
        132,
        VIOLET,
        "run, C",
        "the runtime of model files:",
        "without torch, without Python",
    )
    p.box(20, 292, 820, 60, GOLD, "abi.h, the contract",
          "one exported symbol, one table of C functions, no header of torch")  # fmt: skip
    names = [("sim", "a chip in memory"), ("opencl", "any OpenCL device"),
             ("cuda", "NVIDIA's GPUs"), ("yours", "a package of its own")]  # fmt: skip
    for i, (name, said) in enumerate(names):
        p.box(20 + 207 * i, 374, 199, 62, GREEN, name, said)
    for x in (119, 326, 533, 740):
        p.arrow(x, 354, x, 372)
    p.text(430, 458, "A vendor's library is built once and is never rebuilt for another torch.",
           13, fill=SOFT, anchor="middle")  # fmt: skip
    return p


def ladder() -> Picture:
    p = Picture(
        "The ladder",
        "A call takes the first rung that can serve it: native, derived, portable, decomposed, host.",
        860, 430,
    )  # fmt: skip
    p.box(20, 20, 230, 56, GREY, "torch.softmax(x, 1)", "a call on the device")
    p.arrow(250, 48, 318, 48)
    rungs = [
        (GREEN, "native", "the vendor's kernel", "op_find"),
        (GREEN, "derived", "the vendor's kernel of another form, or on dense inputs", "op_find"),
        (BLUE, "portable", "Causeway's own kernel, built by the chip's compiler", "code.v1"),
        (VIOLET, "decomposed", "several kernels of the rungs above", "none"),
        (GOLD, "host", "the CPU's kernel, on the same bytes or on copies", "none"),
    ]
    for i, (fill, name, said, _) in enumerate(rungs):
        y = 20 + 76 * i
        p.box(320, y, 390, 56, fill, name, said)
        if i:
            p.arrow(400, y - 20, 400, y - 2, "not offered, or declined")
    for (_, _, _, needs), i in zip(rungs, range(5), strict=True):
        p.text(
            728,
            53 + 76 * i,
            f"needs {needs}" if needs != "none" else "needs nothing",
            12.5,
            fill=SOFT,
        )
    p.box(20, 172, 230, 56, GREY, "the ledger", "counts each call by rung")
    p.box(20, 324, 230, 56, RED, "the policy", "allow, warn, or FallbackError")
    p.arrow(320, 352, 252, 352)
    for i in range(5):
        p.line(320, 48 + 76 * i, 250, 200)
    p.text(430, 414, "The rung is found once for an operator and its signature, and remembered.",
           13, fill=SOFT, anchor="middle")  # fmt: skip
    return p


def call() -> Picture:
    p = Picture(
        "The way of a call",
        "From torch's dispatcher through ladder/unboxed.cpp, call.cpp and device_call.cpp to a rung and the vendor.",
        860, 420,
    )  # fmt: skip
    p.box(20, 20, 240, 56, GREY, "torch.add(a, b)", "autograd, then PrivateUse1")
    p.arrow(260, 48, 308, 48)
    p.box(310, 20, 250, 56, BLUE, "unboxed.cpp, call.cpp", "the operator's record")
    p.arrow(560, 48, 618, 48, "if on")
    p.box(620, 20, 220, 56, VIOLET, "who looks on", "ledger, compare, trace, dump")
    p.arrow(435, 76, 435, 112)
    p.box(310, 114, 250, 56, BLUE, "device_call.cpp", "the route of this signature")
    p.arrow(310, 142, 262, 142, "first")
    p.box(20, 114, 240, 56, BLUE, "forms.cpp, routes.cpp", "which kernel, kept for later")
    columns = [
        (20, GREEN, "native, derived", "arguments as cw_arg", "kernel(args, n, stream)"),
        (233, BLUE, "portable", "source built once", "launch on the stream"),
        (446, VIOLET, "decomposed", "torch's decomposition", "each starts at the top"),
        (659, GOLD, "host", "wait for the stream", "the CPU's kernel"),
    ]
    for x, fill, name, first, second in columns:
        p.arrow(435, 170, x + 90, 212)
        p.box(x, 214, 181, 78, fill, name, first, second)
    p.box(20, 330, 394, 56, GOLD, "abi.h", "the vendor's library puts work on a stream")
    p.arrow(110, 292, 110, 328)
    p.arrow(323, 292, 323, 328)
    p.box(
        446,
        330,
        394,
        56,
        GREY,
        "torch's CPU kernels",
        "on the chip's memory where the host can address it",
    )
    p.arrow(749, 292, 749, 328)
    return p


def streams() -> Picture:
    p = Picture(
        "Threads and streams",
        "Two threads put work on two streams; an event orders them; the host waits where it needs a number.",
        860, 340,
    )  # fmt: skip
    lanes = [
        ("Python thread", 60),
        ("autograd's thread", 120),
        ("default stream", 200),
        ("side stream", 260),
    ]
    for name, y in lanes:
        p.text(20, y + 5, name, 14, bold=True)
        p.line(170, y, 840, y)
    p.text(20, 26, "time goes to the right", 12, fill=SOFT)
    p.box(180, 42, 90, 36, BLUE, "forward", centre=True, size=13)
    p.box(480, 42, 150, 36, BLUE, "side.wait_event(e)", centre=True, size=13)
    p.box(690, 42, 140, 36, RED, "loss.item() waits", centre=True, size=13)
    p.box(300, 102, 100, 36, BLUE, "backward", centre=True, size=13)
    p.box(225, 182, 150, 36, GREEN, "forward's kernels", centre=True, size=13)
    p.box(390, 182, 160, 36, GREEN, "backward's kernels", centre=True, size=13)
    p.box(590, 242, 120, 36, GREEN, "copy out", centre=True, size=13)
    p.arrow(225, 78, 260, 180)
    p.arrow(350, 138, 430, 180)
    p.arrow(550, 204, 588, 250, "event e")
    p.arrow(552, 190, 740, 80, dashed=True)
    p.text(430, 318, "Work on one stream runs in its order. Nothing orders two streams but events. A call returns before its work is done.",
           13, fill=SOFT, anchor="middle")  # fmt: skip
    return p


PICTURES = {"layers": layers, "ladder": ladder, "call": call, "streams": streams}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw().svg())
