"""Functions of kernels whose items run in turn: what folds an array of values, and what fills one
with random numbers.

Compilers do not make vectors of every loop: GCC none of a maximum that keeps NaN, LLVM none of an
exponential that is added up as it comes. So a kernel computes the values of a row into an array, in
a loop that is nothing else, and these fold it, by vectors as wide as a CPU's registers.
"""

from __future__ import annotations

# {t}: f32 or f64; {w}: how many a vector holds; {i}: the integer of its comparisons.
_VECTORS = """
#ifdef __OPENCL_VERSION__
typedef {c}{w} vec_{t};
#define GET_{t}(p) vload{w}(0, p)
#define PUT_{t}(p, v) vstore{w}(v, 0, p)
#define PICK_{t}(test, a, b) select(b, a, test)
#else
typedef {t} vec_{t} __attribute__((vector_size({bytes}), aligned({size})));
typedef {i} mask_{t} __attribute__((vector_size({bytes}), aligned({size})));
#define GET_{t}(p) (*(const vec_{t}*)(p))
#define PUT_{t}(p, v) (*(vec_{t}*)(p) = (v))
#define PICK_{t}(test, a, b) (vec_{t})(((mask_{t})(a) & (test)) | ((mask_{t})(b) & ~(test)))
#endif
"""
_EXTREME = """
FUNCTION {t} row_{how}_{t}(const {t}* v, idx n) {{
  {t} lanes[{w}], m = {start};
  vec_{t} a, b, c, d;
  idx j = 0;
  for (int l = 0; l < {w}; ++l) lanes[l] = m;
  a = b = c = d = GET_{t}(lanes);
  for (; j + 4 * {w} <= n; j += 4 * {w}) {{
    const vec_{t} x = GET_{t}(v + j), y = GET_{t}(v + j + {w});
    const vec_{t} z = GET_{t}(v + j + 2 * {w}), w = GET_{t}(v + j + 3 * {w});
    a = PICK_{t}((x {sign} a) | (x != x), x, a);
    b = PICK_{t}((y {sign} b) | (y != y), y, b);
    c = PICK_{t}((z {sign} c) | (z != z), z, c);
    d = PICK_{t}((w {sign} d) | (w != w), w, d);
  }}
  a = PICK_{t}((b {sign} a) | (b != b), b, a);
  c = PICK_{t}((d {sign} c) | (d != d), d, c);
  a = PICK_{t}((c {sign} a) | (c != c), c, a);
  PUT_{t}(lanes, a);
  for (int l = 0; l < {w}; ++l) m = {name}(lanes[l], m);
  for (; j < n; ++j) m = {name}(v[j], m);
  return m;
}}
"""
# {a}: what is added up in, {get}: {w} values as such a vector, {x}: what is added of each.
_SUM = """
FUNCTION {a} row_{how}_{t}(const {t}* v, {more}idx n) {{
  {a} lanes[{w}], sum = 0;
  vec_{a} a, b, c, d;
  idx j = 0;
  for (int l = 0; l < {w}; ++l) lanes[l] = 0;
  a = b = c = d = GET_{a}(lanes);
  for (; j + 4 * {w} <= n; j += 4 * {w}) {{
    const vec_{a} p = {get}(v + j), q = {get}(v + j + {w});
    const vec_{a} r = {get}(v + j + 2 * {w}), t = {get}(v + j + 3 * {w});
    a += {p}; b += {q}; c += {r}; d += {t_};
  }}
  PUT_{a}(lanes, (a + b) + (c + d));
  for (int l = 0; l < {w}; ++l) sum += lanes[l];
  for (; j < n; ++j) {{ const {a} p = ({a})v[j]; sum += {p}; }}
  return sum;
}}
"""
_WIDE = """
#ifdef __OPENCL_VERSION__
#define WIDE_f32(p) convert_double4(vload4(0, p))
#else
typedef f32 half_f32 __attribute__((vector_size(16), aligned(4)));
#define WIDE_f32(p) __builtin_convertvector(*(const half_f32*)(p), vec_f64)
#endif
"""
# Values of random_word(seed, at + i, stream), i below n: 64 from 16 calls.
_RANDOM = """
FUNCTION void random_block(u64 seed, u64 block, u32 stream, u32* to) {
  INDEPENDENT_MANY
  for (int l = 0; l < 16; ++l) {
    const u64 at = block * 16 + (u64)l;
    u32 c0 = (u32)at, c1 = (u32)(at >> 32), c2 = stream, c3 = 0;
    const u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    ROUNDS_
    to[l] = c0; to[16 + l] = c1; to[32 + l] = c2; to[48 + l] = c3;
  }
}
FUNCTION void random_row(i64 seed, idx at, u32 stream, u32* to, idx n) {
  u32 block[64];
  for (idx i = 0; i < n;) {
    const idx from = (at + i) % 64, left = 64 - from, take = left < n - i ? left : n - i;
    if (take == 64) random_block((u64)seed, (u64)((at + i) / 64), stream, to + i);
    else {
      random_block((u64)seed, (u64)((at + i) / 64), stream, block);
      for (idx l = 0; l < take; ++l) to[i + l] = block[from + l];
    }
    i += take;
  }
}
"""


def _of(t: str, wide: bool) -> str:
    size, w = (4, 8) if t == "f32" else (8, 4)
    c, i = ("float", "i32") if t == "f32" else ("double", "i64")
    out = _VECTORS.format(t=t, w=w, c=c, i=i, bytes=32, size=size)
    for how, name, sign, start in (
        ("max", "MAXIMUM", ">", "-INFINITY"),
        ("min", "MINIMUM", "<", "INFINITY"),
    ):
        out += _EXTREME.format(t=t, w=w, how=how, name=name, sign=sign, start=start)
    if not wide:
        out += _sums(t, t, f"GET_{t}", w)
    return out


def _sums(t: str, a: str, get: str, w: int) -> str:
    out = ""
    for how, more, text in (
        ("sum", "", "{x}"),
        ("squares", "", "{x} * {x}"),
        ("spread", f"{a} mean, ", "({x} - mean) * ({x} - mean)"),
    ):
        parts = {("t_" if x == "t" else x): text.format(x=x) for x in "pqrt"}
        out += _SUM.format(t=t, a=a, how=how, more=more, get=get, w=w, **parts)
    return out


def functions(has_float64: bool) -> str:
    """Their text. Sums of float32 are float64 where the chip has it."""
    text = _of("f32", has_float64)
    if has_float64:
        text += _of("f64", False) + _WIDE + _sums("f32", "f64", "WIDE_f32", 4)
    return text + _RANDOM
