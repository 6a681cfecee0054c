// Texts of pointwise_table.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// common_divisor: As torch's: the least integer has no positive one, so with it a divisor may be negative.
#define WRAPPED_NEGATIVE(v) K((u64)0 - (u64)(v))
FUNCTION T common_divisor(T v, T r) {
  v = v < K(0) ? WRAPPED_NEGATIVE(v) : v;
  r = r < K(0) ? WRAPPED_NEGATIVE(r) : r;
  while (v != K(0)) {
    const T rest = IS_SIGNED && v == K(-1) ? K(0) : K(r % v);
    r = v;
    v = rest;
  }
  return r;
}
