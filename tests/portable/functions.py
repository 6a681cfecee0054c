"""How far functions of float32 are from those of float64: `python functions.py [COUNT]`.

Any bit pattern is an argument, as likely as any other. Prints a line for each function with the
largest error in units of the last place, and where, then for each that misses its bound or gives
another NaN, infinity or sign of zero, that it does.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

DEVICE = torch.accelerator.current_accelerator()
# Units of the last place; torch's own are within 1 to 4.
UNARY = {
    "exp": 2.0, "exp2": 2.0, "expm1": 2.5, "log": 1.5, "log2": 2.5, "log10": 2.5, "log1p": 2.5,
    "sin": 2.0, "cos": 2.0, "tan": 4.0, "asin": 2.5, "acos": 2.5, "atan": 2.5, "sinh": 4.0,
    "cosh": 4.0, "tanh": 2.5, "atanh": 4.0, "erf": 2.0, "erfc": 0.6, "round": 0.0,
}  # fmt: skip
BINARY = {"pow": 0.6, "atan2": 3.0, "hypot": 0.6}
SPECIAL = [0.0, 1.0, 0.5, 2.0, 3.0, 88.7, 89.0, 103.0, 1e-38, 1e-45, 3e38, float("inf")]


def arguments(count: int, seed: int) -> torch.Tensor:
    """Any bit pattern as likely, as many again of usual size, and what is special."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    usual = generator.normal(0, 4, count).astype(np.float32)
    special = np.array(SPECIAL + [-x for x in SPECIAL] + [float("nan")], dtype=np.float32)
    return torch.from_numpy(np.concatenate([bits, usual, special]))


def units(found: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Errors in units of the last place of the right value, in float64."""
    _, exponent = torch.frexp(right)
    unit = torch.ldexp(torch.ones_like(right), exponent.clamp(min=-125) - 24)
    return ((found.double() - right) / unit).abs()


def check(name: str, bound: float, args: tuple[torch.Tensor, ...]) -> None:
    f = getattr(torch, name)
    found = f(*(a.to(DEVICE) for a in args)).cpu()
    right = f(*(a.double() for a in args))
    rounded = right.float()
    finite = rounded.isfinite() & found.isfinite()
    error = torch.where(finite, units(found, right), 0)
    worst = int(error.argmax())
    at = ", ".join(f"{float(a[worst]):.9g}" for a in args)
    print(f"{name:6} {float(error[worst]):.2f} at {at}")
    if float(error[worst]) > bound:
        print(f"{name}: more than {bound}")
    other = (found.isnan() != rounded.isnan()) | (found.isinf() != rounded.isinf())
    # Next to the largest number either is right.
    other &= ~((right.abs() > 3.4028e38) & ~right.isnan() & (found.abs() > 3.4028e38))
    other |= ~rounded.isnan() & (found.signbit() != rounded.signbit()) & (rounded.abs() != 0)
    other |= (rounded == 0) & (right == 0) & (found.signbit() != right.signbit())
    if bool(other.any()):
        i = int(other.nonzero()[0])
        at = ", ".join(repr(float(a[i])) for a in args)
        print(f"{name}: {float(found[i])} for {at}, right is {float(rounded[i])}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    x, y = arguments(count, 0), arguments(count, 1)
    for name, bound in UNARY.items():
        check(name, bound, (x,))
    y = torch.cat([y[: y.numel() // 2], y[y.numel() // 2 :].round()])  # whole powers among them
    special = torch.cartesian_prod(x[-25:], x[-25:])
    x, y = torch.cat([x, special[:, 0]]), torch.cat([y, special[:, 1]])
    for name, bound in BINARY.items():
        check(name, bound, (x, y))


if __name__ == "__main__":
    main()
