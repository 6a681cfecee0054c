// Texts of gemm.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// panels: An item packs `together` panels of B for `chunk` of k, and goes down A in blocks of rows: a stretch of k of a block
//// stays in the second cache for all panels. Many rows are copied, as rows that lie a power of 2 apart would all need the
//// same places of the first cache. `kept_rows`: of which sums are kept from one stretch to the next. With `taken`, items
//// take panels as they get done, as cores are not equally fast, and count them in the workspace's first word.
for (idx u = taken ? 0 : FIRST(units), end = taken ? 0 : LAST(units);;) {
  if (taken && u >= end) {
    u = COUNT(packs) * together;
    end = units - u < together ? units : u + together;
  }
  if (u >= end) break;
  const idx panel = u % panels, split = u / panels % splits, batch = u / panels / splits;
  const idx tiles = (M + TILE - 1) / TILE;
  const idx first = tiles * split / splits * TILE, past = tiles * (split + 1) / splits * TILE;
  const idx last = past < M ? past : M;
  const idx here = end - u < panels - panel ? end - u : panels - panel, some = here < together ? here : together;
  GLOBAL T* staged = packs + HEAD + item * slot;
  GLOBAL T* acc = staged + block * STAGED;
  GLOBAL T* packed = acc + together * kept_rows * WIDE;
  BEGIN
  for (idx c0 = 0; c0 < K; c0 += chunk) {
    const idx c1 = K - c0 < chunk ? K : c0 + chunk;
    for (idx g = 0; g < some; ++g) {
      const idx n0 = (panel + g) * WIDE, wide = N - n0 < WIDE ? N - n0 : WIDE;
      PANEL
      for (idx k0 = c0; k0 < c1; k0 += DEPTH) {
        const idx k1 = c1 - k0 < DEPTH ? c1 : k0 + DEPTH;
        GLOBAL T* pack = packed + (g * chunk + k0 - c0) * WIDE;
        PACK
      }
    }
    for (idx top = first; top < last; top += block) {
      const idx bottom = last - top < block ? last : top + block, kept_from = chunk < K ? first : top;
      for (idx k0 = c0; k0 < c1; k0 += DEPTH) {
        const idx k1 = c1 - k0 < DEPTH ? c1 : k0 + DEPTH, depth = k1 - k0;
        BLOCK_STAGE
        for (idx g = 0; g < some; ++g) {
          const idx n0 = (panel + g) * WIDE, wide = N - n0 < WIDE ? N - n0 : WIDE;
          GLOBAL const T* pack = packed + (g * chunk + k0 - c0) * WIDE;
          for (idx m0 = top; m0 < bottom; m0 += TILE) {
            const idx left = last - m0;
            GLOBAL const AT* from_a = a + (a_base + m0 * am + k0 * AK);
            GLOBAL const T* to_a = staged + (m0 - top) * STAGED;
            GLOBAL T* kept = acc + (g * kept_rows + m0 - kept_from) * WIDE;
            TILE_ZERO
            if (k0 > 0) { TILE_TAKE }
            TILE_RUN
            if (k1 < K) {
              TILE_KEEP
            } else {
              T tile[TILE * WIDE];
              TILE_OUT
              const idx rows = left < TILE ? left : TILE;
              TILE_PUT
            }
          }
        }
      }
    }
  }
  u += some;
}

//// elements
for (idx u = FIRST(units), end = LAST(units); u < end; u += STEP) {
  const idx n = u % N, m = u / N % M, batch = u / N / M;
  BEGIN
  T v = 0;
  for (idx k = 0; k < DEPTH_OF_BATCH; ++k) v = FMA((T)(A_AT), (T)(B_AT), v);
  PUT
}

//// columns: One or a few columns of the result, on CPUs: rows of A and columns of B lie dense in k, and nothing is packed, as
//// each row of A is needed once.
for (idx u = FIRST(units), end = LAST(units); u < end; ++u) {
  const idx m = u % M, batch = u / M;
  BEGIN
  GLOBAL const T* row = a + (a_base + m * am);
  COLUMNS_ZERO
  idx k = 0;
  for (; k + TOGETHER * LANES_OF_V <= K; k += TOGETHER * LANES_OF_V) { COLUMNS_RUN }
  for (; k + LANES_OF_V <= K; k += LANES_OF_V) { COLUMNS_STEP }
  COLUMNS_OUT
}

//// squares: `MS` rows and `NS` columns a group of SIDE x SIDE items, `RM` x `RN` of them an item: blocks of VM x VN neighbours, as
//// these are read from the group's memory at once. 4 more than a row of it has: what is written down a column meets no
//// bank twice. Of the last stretch of k no more is added than there is: that too would change a zero's sign.
LOCAL ALIGNED T rows[DEPTH * (MS + 4)];
LOCAL ALIGNED T columns[DEPTH * (NS + 4)];
const idx down = (M + MS - 1) / MS, across = (N + NS - 1) / NS, squares = units;
const int lane = (int)LANE, lx = lane % SIDE, ly = lane / SIDE;
for (idx u = GROUP; u < squares; u += GROUPS) {
  const idx n0 = u % across * NS, m0 = u / across % down * MS, batch = u / across / down % batches;
  BEGIN
#if PARTIAL
  const idx part = u / across / down / batches, stretches = (DEPTH_OF_BATCH + 31) / 32;
  const idx k_first = stretches * part / parts * 32, k_end = stretches * (part + 1) / parts * 32;
  const idx k_past = k_end < DEPTH_OF_BATCH ? k_end : DEPTH_OF_BATCH;
#else
  const idx k_first = 0, k_past = DEPTH_OF_BATCH;
#endif
  T c[RM * RN], next_a[LOADS_A], next_b[LOADS_B];
  UNROLL for (int i = 0; i < RM * RN; ++i) c[i] = 0;
#define FETCH(from) \
  UNROLL for (int j = 0; j < LOADS_A; ++j) { \
    const int i = lane + j * SIDE * SIDE; \
    const idx m = m0 + (A_ALONG_K ? i / DEPTH : i % MS), k = from + (A_ALONG_K ? i % DEPTH : i / MS); \
    T v = 0; \
    if (m < M && k < k_past) v = (T)(A_AT); \
    next_a[j] = v; \
  } \
  UNROLL for (int j = 0; j < LOADS_B; ++j) { \
    const int i = lane + j * SIDE * SIDE; \
    const idx n = n0 + (B_ALONG_K ? i / DEPTH : i % NS), k = from + (B_ALONG_K ? i % DEPTH : i / NS); \
    T v = 0; \
    if (n < N && k < k_past) v = (T)(B_AT); \
    next_b[j] = v; \
  }
#define ADD(kk) { \
    T x[RM], y[RN]; \
    UNROLL for (int i = 0; i < RM; ++i) x[i] = rows[(kk) * (MS + 4) + i / VM * (SIDE * VM) + ly * VM + i % VM]; \
    UNROLL for (int j = 0; j < RN; ++j) y[j] = columns[(kk) * (NS + 4) + j / VN * (SIDE * VN) + lx * VN + j % VN]; \
    UNROLL for (int i = 0; i < RM; ++i) \
      UNROLL for (int j = 0; j < RN; ++j) c[i * RN + j] = FMA(x[i], y[j], c[i * RN + j]); \
  }
  FETCH(k_first)
  for (idx k0 = k_first; k0 < k_past; k0 += DEPTH) {
    UNROLL for (int j = 0; j < LOADS_A; ++j) {
      const int i = lane + j * SIDE * SIDE;
      rows[A_ALONG_K ? i % DEPTH * (MS + 4) + i / DEPTH : i / MS * (MS + 4) + i % MS] = next_a[j];
    }
    UNROLL for (int j = 0; j < LOADS_B; ++j) {
      const int i = lane + j * SIDE * SIDE;
      columns[B_ALONG_K ? i % DEPTH * (NS + 4) + i / DEPTH : i / NS * (NS + 4) + i % NS] = next_b[j];
    }
    BARRIER;
    const idx k_next = k0 + DEPTH;
    if (k_next < k_past) { FETCH(k_next) }
    if (k_past - k0 >= DEPTH) {
      UNROLL for (int kk = 0; kk < DEPTH; ++kk) ADD(kk)
    } else {
      for (int kk = 0; kk < (int)(k_past - k0); ++kk) ADD(kk)
    }
    BARRIER;
  }
  UNROLL for (int i = 0; i < RM; ++i)
    UNROLL for (int j = 0; j < RN; ++j) {
      const idx m = m0 + i / VM * (SIDE * VM) + ly * VM + i % VM, n = n0 + j / VN * (SIDE * VN) + lx * VN + j % VN;
      T v = c[i * RN + j];
#if PARTIAL
      if (m < M && n < N) packs[((part * batches + batch) * M + m) * N + n] = v;
#else
      if (m < M && n < N) { PUT }
#endif
    }
}

//// sums
const idx count = batches * M * N;
for (idx u = FIRST(count), end = LAST(count); u < end; u += STEP) {
  const idx n = u % N, m = u / N % M, batch = u / N / M;
  BEGIN
  T v = 0;
  for (idx p = 0; p < parts; ++p) v += packs[((p * batches + batch) * M + m) * N + n];
  PUT
}
