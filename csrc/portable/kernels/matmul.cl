// Texts of matmul.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// matmul: What a product of gemm.cl is made of: AK, BK, BN, OM, ON, CM and CN are strides, or 1 where that is known.
#if ADDED
#define BEGIN \
  const idx a_base = batch * a_batch, b_base = batch * b_batch, o_base = batch * o_batch; \
  const idx c_base = batch * c_batch;
#if SCALED
#define ADD_C v = FMA(beta, (T)LD(c_, c_base + m * CM + n * CN), v);
#else
#define ADD_C v = v + (T)LD(c_, c_base + m * CM + n * CN);
#endif
#else
#define BEGIN const idx a_base = batch * a_batch, b_base = batch * b_batch, o_base = batch * o_batch;
#define ADD_C
#endif
#if SCALED
#define SCALE v = alpha * v;
#else
#define SCALE
#endif
#define PUT SCALE ADD_C FINISH(o_base + m * OM + n * ON)
#define AT_BATCH batch
#if TURNED
#define AT_ROW n
#define AT_COLUMN m
#else
#define AT_ROW m
#define AT_COLUMN n
#endif
#define B_AT LD(b_, b_base + k * BK + n * BN)
#define COLUMN_AT(n) b_base + n * bn
#if N_DENSE
#define PACK \
  if (wide == WIDE) { \
    for (idx k = k0; k < k1; ++k) { \
      GLOBAL const AT* from = b_ + b_base + k * BK + n0; \
      GLOBAL T* to = pack + (k - k0) * WIDE; \
      for (idx l = 0; l < WIDE; l += 16) { AHEAD(from + 8 * bk + l) } \
      INDEPENDENT \
      for (idx l = 0; l < WIDE; ++l) to[l] = LD(from, l); \
    } \
  } else { \
    for (idx k = k0; k < k1; ++k) \
      for (idx l = 0; l < WIDE; ++l) { const idx n = l < wide ? n0 + l : n0; pack[(k - k0) * WIDE + l] = B_AT; } \
  }
#elif K_DENSE
/* 16 of k at a time: whole cache lines are read, and the next asked for. */
#define PACK \
  for (idx k = k0; k < k1; k += 16) { \
    const idx most = k1 - k < 16 ? k1 - k : 16; \
    GLOBAL T* to = pack + (k - k0) * WIDE; \
    for (idx l = 0; l < WIDE; l += 16) { \
      GLOBAL const AT* from = b_ + (b_base + k); \
      if (most == 16 && l + 16 <= wide) { \
        TURN(from + (n0 + l) * bn, bn, to + l) \
      } else \
        for (idx i = l; i < l + 16; ++i) \
          for (idx j = 0; j < most; ++j) to[j * WIDE + i] = LD(from + (i < wide ? n0 + i : n0) * bn, j); \
    } \
  }
#endif
