// Texts of gemm.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. What a product is made of stands
// before them, macros of whoever has one:
//   BEGIN             declarations for this `batch`: sets a_base
//   B_AT              B[k, n]; of few columns COLUMN_AT(n), where column n begins
//   PUT               puts the value v at m, n: by FINISH(at), which stores it; FINISH_ROW stands where a row begins
// and, where it is not as in `product`:
//   A_AT              A[m, k] (not CPUs)
//   DEPTH_OF_BATCH    how many k there are for this `batch` (not CPUs)
//   PANEL             for the columns n0 .. n0 + wide - 1 of it (CPUs)
//   PACK              fills pack[(k - k0) * WIDE + l] for k0 <= k < k1 and l < WIDE (CPUs)

//// finish
#ifndef FINISH
#define FINISH(at) ST(out, at, v);
#endif
#ifndef FINISH_ROW
#define FINISH_ROW
#endif

//// product
#ifndef A_AT
#define A_AT LDA(a, a_base + m * am + k * AK)
#endif
#ifndef DEPTH_OF_BATCH
#define DEPTH_OF_BATCH K
#endif
#ifndef PANEL
#define PANEL
#endif
#ifndef PACK
#define PACK \
  for (idx k = k0; k < k1; ++k) \
    for (idx l = 0; l < WIDE; ++l) { const idx n = l < wide ? n0 + l : n0; pack[(k - k0) * WIDE + l] = B_AT; }
#endif

//// in_turn: On CPUs, AHEAD: what will be read soon, into the second cache; COUNT: one more.
// A translator to SPIR-V ends the process at a prefetch.
#ifdef __has_builtin
#if __has_builtin(__builtin_prefetch) && !defined(__SPIR32__) && !defined(__SPIR64__) && !defined(__SPIRV__)
#define AHEAD(p) __builtin_prefetch((const void*)(u64)(p), 0, 2);
#endif
#endif
#ifndef AHEAD
#define AHEAD(p)
#endif
#ifdef __OPENCL_VERSION__
#define COUNT(p) ((idx)atomic_inc((volatile GLOBAL u32*)(p)))
#else
#define COUNT(p) ((idx)__atomic_fetch_add((u32*)(p), 1, __ATOMIC_RELAXED))
#endif

//// turn: TURN(p, step, to): 16 x 16 elements, of which neighbours in memory are neighbours in k, into rows of a packed panel.
#ifndef TURN
#define TURN(p, step, to) \
  for (int i = 0; i < 16; ++i) { \
    GLOBAL const AT* row = (p) + i * (step); \
    AHEAD(row + 64) UNROLL for (int j = 0; j < 16; ++j) (to)[j * WIDE + i] = LDA(row, j); \
  }
#endif

//// tile: Around a tile of the result, and the rows of A that are not read in place: these are copied for a stretch of k,
//// converted once. Where neighbours of k are no neighbours in memory, rows lie side by side.
#if OUT_ACROSS
#define TILE_PUT \
  for (idx l = 0; l < wide; ++l) { \
    INDEPENDENT_FEW \
    for (idx i = 0; i < rows; ++i) { const idx m = m0 + i, n = n0 + l; T v = tile[i * WIDE + l]; PUT } \
  }
#else
#define TILE_PUT \
  for (idx i = 0; i < rows; ++i) { \
    const idx m = m0 + i; \
    FINISH_ROW \
    int l0 = 0; \
    for (; l0 + LANES_OF_V <= wide; l0 += LANES_OF_V) { \
      INDEPENDENT \
      for (int j = 0; j < LANES_OF_V; ++j) { const int l = l0 + j; const idx n = n0 + l; T v = tile[i * WIDE + l]; PUT } \
    } \
    for (int l = l0; l < wide; ++l) { const idx n = n0 + l; T v = tile[i * WIDE + l]; PUT } \
  }
#endif
#if IN_PLACE
#define BLOCK_STAGE
#elif A_DENSE
#define BLOCK_STAGE \
  for (idx m0 = top; m0 < bottom; m0 += TILE) { \
    const idx left = last - m0; \
    GLOBAL const AT* from_a = a + (a_base + m0 * am + k0); \
    GLOBAL T* to_a = staged + (m0 - top) * STAGED; \
    for (idx i = 0; i < TILE; ++i) { \
      GLOBAL const AT* r = from_a + (i < left ? i : 0) * am; \
      GLOBAL T* to = to_a + i * STAGED; \
      INDEPENDENT \
      for (idx k = 0; k < depth; ++k) to[k] = LDA(r, k); \
    } \
  }
#else
#define BLOCK_STAGE \
  for (idx k = 0; k < depth; ++k) { \
    GLOBAL const AT* r = a + (a_base + top * AM + (k0 + k) * ak); \
    for (idx m0 = top; m0 < bottom; m0 += TILE, r += TILE * AM) { \
      const idx left = last - m0; \
      GLOBAL T* to = staged + (m0 - top) * STAGED + k * TILE; \
      AHEAD(r + 8 * ak) \
      if (left >= TILE) { \
        UNROLL for (int i = 0; i < TILE; ++i) to[i] = LDA(r, i * AM); \
      } else { \
        for (idx i = 0; i < TILE; ++i) to[i] = LDA(r, (i < left ? i : 0) * AM); \
      } \
    } \
  }
#endif

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
