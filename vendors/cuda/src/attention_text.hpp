// The text of attention's kernels, for NVRTC: attention without the full matrix of scores, and its gradient (Dao et al.
// 2022), on tensor cores by mma.sync.m16n8k16. sm_80 and later.
//
// A warp has 16 rows of a product. Tiles lie in shared memory as rows of DP elements, the 16-byte pieces of a row
// permuted by its number, so that ldmatrix reads without conflicts. What a lane has of a 16 x 8 tile of sums: row
// lane / 4, columns lane % 4 * 2 and one more, then the same of row lane / 4 + 8.
//
// Defined before it: BFLOAT, DP (64 or 128: the depth that tiles have), CAUSAL, BC (keys or queries of a step).
#pragma once

namespace cuda {

constexpr const char* kAttentionText = R"(
typedef unsigned u32;
typedef unsigned short u16;
typedef long long i64;
#define THREADS 256
#define ROWS 128
// Of a warp's rows in `forward`, 16 each, as many as its registers hold.
#define PARTS (DP == 64 ? 2 : 1)
#define FORWARD_THREADS (ROWS / 16 / PARTS * 32)
#define PIECES (DP / 8)
#define STEPS (DP / 16)
#define TILE (BC * DP * 2)
#define INF __int_as_float(0x7f800000)

struct At { i64 b, h, l; };
struct Sizes {
  int H, shared, L, S, D;
  float scale;
};

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void piece_in(u32 to, const u16* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
__device__ __forceinline__ void wait_for() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}
__device__ __forceinline__ void load4(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load4_turned(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
#if BFLOAT
#define PRODUCT "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
#define PRODUCT "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
__device__ __forceinline__ void multiply(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile(PRODUCT "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 r;
#if BFLOAT
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
  return r;
}
__device__ __forceinline__ float number(u16 v) {
#if BFLOAT
  return __int_as_float((int)((u32)v << 16));
#else
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
#endif
}
__device__ __forceinline__ float power(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// Where piece `p` of row `r` of a tile lies.
__device__ __forceinline__ u32 place(u32 tile, int r, int p) { return tile + r * (DP * 2) + ((p ^ (r & 7)) << 4); }

// Rows first .. first + rows - 1 into a tile; what is beyond `past` rows or D columns becomes 0.
template <int threads = THREADS>
__device__ __forceinline__ void load(u32 tile, const u16* from, i64 step, int first, int rows, int past, int D) {
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * PIECES; i += threads) {
    const int r = i / PIECES, p = i % PIECES;
    const bool in = first + r < past && p * 8 < D;
    piece_in(place(tile, r, p), in ? from + (i64)(first + r) * step + p * 8 : from, in ? 16 : 0);
  }
}

// The left factor's 16 x 16 part: rows of a tile from `row`, step `k` of its columns.
__device__ __forceinline__ void left(u32* r, u32 tile, int row, int k, int lane) {
  const int m = lane >> 3;
  load4(r, place(tile, row + (m & 1) * 8 + (lane & 7), k * 2 + (m >> 1)));
}
// Two right factors of 16 x 8 whose columns are the tile's rows `row` .. + 7 and `row + 8` .. + 15.
__device__ __forceinline__ void right_of_rows(u32* r, u32 tile, int row, int k, int lane) {
  const int m = lane >> 3;
  load4(r, place(tile, row + (m >> 1) * 8 + (lane & 7), k * 2 + (m & 1)));
}
// Two whose rows are the tile's rows `row` .. + 15, and columns its pieces `p` and `p + 1`.
__device__ __forceinline__ void right_of_columns(u32* r, u32 tile, int row, int p, int lane) {
  const int m = lane >> 3;
  load4_turned(r, place(tile, row + (m & 1) * 8 + (lane & 7), p + (m >> 1)));
}

// c[16 x BC] = the 16 rows `a` times the tile's rows, for each of PARTS: what is read of the tile serves all.
__device__ __forceinline__ void scores(float c[][BC / 8][4], const u32 a[][STEPS][4], u32 tile, int lane) {
#pragma unroll
  for (int m = 0; m < PARTS; ++m)
#pragma unroll
    for (int n = 0; n < BC / 8; ++n) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
#pragma unroll
  for (int k = 0; k < STEPS; ++k)
#pragma unroll
    for (int n = 0; n < BC / 16; ++n) {
      u32 b[4];
      right_of_rows(b, tile, n * 16, k, lane);
#pragma unroll
      for (int m = 0; m < PARTS; ++m) {
        multiply(c[m][n * 2], a[m][k], b[0], b[1]);
        multiply(c[m][n * 2 + 1], a[m][k], b[2], b[3]);
      }
    }
}
// One such part with the left factor in shared memory.
__device__ __forceinline__ void scores(float c[][4], u32 own, int row, u32 tile, int lane) {
#pragma unroll
  for (int n = 0; n < BC / 8; ++n) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
  for (int k = 0; k < STEPS; ++k) {
    u32 a[4];
    left(a, own, row, k, lane);
#pragma unroll
    for (int n = 0; n < BC / 16; ++n) {
      u32 b[4];
      right_of_rows(b, tile, n * 16, k, lane);
      multiply(c[n * 2], a, b[0], b[1]);
      multiply(c[n * 2 + 1], a, b[2], b[3]);
    }
  }
}
// sums[16 x DP] += p[16 x BC] times the tile.
__device__ __forceinline__ void add(float sums[][4], const float p[][4], u32 tile, int lane) {
#pragma unroll
  for (int t = 0; t < BC / 16; ++t) {
    const u32 a[4] = {pack(p[t * 2][0], p[t * 2][1]), pack(p[t * 2][2], p[t * 2][3]),
                      pack(p[t * 2 + 1][0], p[t * 2 + 1][1]), pack(p[t * 2 + 1][2], p[t * 2 + 1][3])};
#pragma unroll
    for (int n = 0; n < STEPS; ++n) {
      u32 b[4];
      right_of_columns(b, tile, t * 16, n * 2, lane);
      multiply(sums[n * 2], a, b[0], b[1]);
      multiply(sums[n * 2 + 1], a, b[2], b[3]);
    }
  }
}
// The same for each of PARTS.
__device__ __forceinline__ void add_parts(float sums[][DP / 8][4], const float p[][BC / 8][4], u32 tile, int lane) {
#pragma unroll
  for (int t = 0; t < BC / 16; ++t) {
    u32 a[PARTS][4];
#pragma unroll
    for (int m = 0; m < PARTS; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        a[m][e] = pack(p[m][t * 2 + e / 2][e % 2 * 2], p[m][t * 2 + e / 2][e % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < STEPS; ++n) {
      u32 b[4];
      right_of_columns(b, tile, t * 16, n * 2, lane);
#pragma unroll
      for (int m = 0; m < PARTS; ++m) {
        multiply(sums[m][n * 2], a[m], b[0], b[1]);
        multiply(sums[m][n * 2 + 1], a[m], b[2], b[3]);
      }
    }
  }
}
// Rows of sums, each times its factor, to where they belong.
__device__ __forceinline__ void store(u16* to, i64 step, const float sums[][4], int row, int past, int D, float f0,
                                      float f1, int lane) {
#pragma unroll
  for (int n = 0; n < DP / 8; ++n) {
    const int d = n * 8 + lane % 4 * 2;
    if (d >= D) continue;
    if (row < past) *(u32*)(to + row * step + d) = pack(sums[n][0] * f0, sums[n][1] * f0);
    if (row + 8 < past) *(u32*)(to + (row + 8) * step + d) = pack(sums[n][2] * f1, sums[n][3] * f1);
  }
}

extern "C" __global__ __launch_bounds__(FORWARD_THREADS, DP == 64 ? 2 : 1) void forward(
    const u16* q, const u16* k, const u16* v, u16* out, float* lse, At q_at, At k_at, At v_at, At o_at, At lse_at,
    Sizes z) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int blocks = (z.L + ROWS - 1) / ROWS, block = blocks - 1 - blockIdx.x % blocks;
  const int h = blockIdx.x / blocks % z.H, b = blockIdx.x / blocks / z.H, i0 = block * ROWS;
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 * PARTS;
  q += b * q_at.b + h * q_at.h, out += b * o_at.b + h * o_at.h, lse += b * lse_at.b + h * lse_at.h;
  k += b * k_at.b + h / z.shared * k_at.h, v += b * v_at.b + h / z.shared * v_at.h;
  const int past = CAUSAL && i0 + ROWS < z.S ? i0 + ROWS : z.S, tiles = (past + BC - 1) / BC;
  const u32 own = shared_address(memory), ring = own + ROWS * DP * 2;
  load<FORWARD_THREADS>(own, q, q_at.l, i0, ROWS, z.L, z.D);
  commit();
  load<FORWARD_THREADS>(ring, k, k_at.l, 0, BC, z.S, z.D);
  load<FORWARD_THREADS>(ring + TILE, v, v_at.l, 0, BC, z.S, z.D);
  commit();
  wait_for<1>();
  __syncthreads();
  u32 mine[PARTS][STEPS][4];
  float sums[PARTS][DP / 8][4], most[PARTS][2], all[PARTS][2];
#pragma unroll
  for (int m = 0; m < PARTS; ++m) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) left(mine[m][s], own, row + m * 16, s, lane);
#pragma unroll
    for (int n = 0; n < DP / 8; ++n) sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0;
    most[m][0] = most[m][1] = -INF, all[m][0] = all[m][1] = 0;
  }
  const float to_log2 = z.scale * 1.44269504f;
  const int r0 = i0 + row + lane / 4;
  for (int t = 0; t < tiles; ++t) {
    const u32 now = ring + (t & 1) * 2 * TILE, next = ring + (~t & 1) * 2 * TILE;
    if (t + 1 < tiles) {
      load<FORWARD_THREADS>(next, k, k_at.l, (t + 1) * BC, BC, z.S, z.D);
      load<FORWARD_THREADS>(next + TILE, v, v_at.l, (t + 1) * BC, BC, z.S, z.D);
      commit();
      wait_for<1>();
    } else {
      wait_for<0>();
    }
    __syncthreads();
    const int j0 = t * BC;
    if (!CAUSAL || j0 < i0 + row + 16 * PARTS) {  // else all of this warp's rows come before the keys
      float s[PARTS][BC / 8][4];
      scores(s, mine, now, lane);
      if (j0 + BC > z.S || (CAUSAL && j0 + BC > i0 + row)) {
#pragma unroll
        for (int m = 0; m < PARTS; ++m)
#pragma unroll
          for (int n = 0; n < BC / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int j = j0 + n * 8 + lane % 4 * 2 + (e & 1);
              if (j >= z.S || (CAUSAL && j > r0 + m * 16 + (e >> 1) * 8)) s[m][n][e] = -INF;
            }
      }
#pragma unroll
      for (int m = 0; m < PARTS; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float high = most[m][half];
#pragma unroll
          for (int n = 0; n < BC / 8; ++n) high = fmaxf(high, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
          high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
          high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
          const float base = high == -INF ? 0 : high * to_log2, factor = power(fmaf(most[m][half], to_log2, -base));
          most[m][half] = high;
          float sum = all[m][half] * factor;
#pragma unroll
          for (int n = 0; n < DP / 8; ++n) sums[m][n][half * 2] *= factor, sums[m][n][half * 2 + 1] *= factor;
#pragma unroll
          for (int n = 0; n < BC / 8; ++n)
#pragma unroll
            for (int e = half * 2; e < half * 2 + 2; ++e) {
              s[m][n][e] = power(fmaf(s[m][n][e], to_log2, -base));
              sum += s[m][n][e];
            }
          all[m][half] = sum;
        }
      add_parts(sums, s, now + TILE, lane);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < PARTS; ++m) {
    const int first = r0 + m * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& sum = all[m][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int r = first + half * 8;
      if (lane % 4 == 0 && r < z.L)
        lse[r * lse_at.l] = most[m][half] == -INF ? -INF : most[m][half] * z.scale + logf(sum);
    }
    store(out, o_at.l, sums[m], first, z.L, z.D, all[m][0] == 0 ? 0 : 1 / all[m][0], all[m][1] == 0 ? 0 : 1 / all[m][1],
          lane);
  }
}

// delta[row] = the sum of out * grad, a warp a row.
extern "C" __global__ __launch_bounds__(THREADS) void row_sums(const u16* out, const u16* grad, float* delta, At o_at,
                                                               At g_at, Sizes z, i64 rows) {
  const i64 r = (i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (r >= rows) return;
  const i64 l = r % z.L, h = r / z.L % z.H, b = r / z.L / z.H;
  out += b * o_at.b + h * o_at.h + l * o_at.l, grad += b * g_at.b + h * g_at.h + l * g_at.l;
  float sum = 0;
  for (int d = threadIdx.x % 32; d < z.D; d += 32) sum = fmaf(number(out[d]), number(grad[d]), sum);
#pragma unroll
  for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
  if (threadIdx.x % 32 == 0) delta[r] = sum;
}

// to_q = scale (p * (grad v' - delta)) k, with p from the scores again.
extern "C" __global__ __launch_bounds__(THREADS) void to_queries(
    u16* to_q, const u16* grad, const u16* q, const u16* k, const u16* v, const float* lse, const float* delta, At dq_at,
    At g_at, At q_at, At k_at, At v_at, At lse_at, Sizes z) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int blocks = (z.L + ROWS - 1) / ROWS, block = blocks - 1 - blockIdx.x % blocks;
  const int h = blockIdx.x / blocks % z.H, b = blockIdx.x / blocks / z.H, i0 = block * ROWS;
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  q += b * q_at.b + h * q_at.h, to_q += b * dq_at.b + h * dq_at.h, grad += b * g_at.b + h * g_at.h;
  lse += b * lse_at.b + h * lse_at.h, delta += ((i64)b * z.H + h) * z.L;
  k += b * k_at.b + h / z.shared * k_at.h, v += b * v_at.b + h / z.shared * v_at.h;
  const int past = CAUSAL && i0 + ROWS < z.S ? i0 + ROWS : z.S, tiles = (past + BC - 1) / BC;
  const u32 queries = shared_address(memory), grads = queries + ROWS * DP * 2, ring = grads + ROWS * DP * 2;
  load(queries, q, q_at.l, i0, ROWS, z.L, z.D);
  load(grads, grad, g_at.l, i0, ROWS, z.L, z.D);
  load(ring, k, k_at.l, 0, BC, z.S, z.D);
  load(ring + TILE, v, v_at.l, 0, BC, z.S, z.D);
  commit();
  float sums[DP / 8][4];
#pragma unroll
  for (int n = 0; n < DP / 8; ++n) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
  const float to_log2 = z.scale * 1.44269504f;
  const int r0 = i0 + row + lane / 4;
  float base[2], mean[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = r0 + half * 8;
    const float found = r < z.L ? lse[r * lse_at.l] : -INF;
    base[half] = found == -INF ? INF : found * 1.44269504f;
    mean[half] = r < z.L ? delta[r] : 0;
  }
  for (int t = 0; t < tiles; ++t) {
    const u32 now = ring + (t & 1) * 2 * TILE, next = ring + (~t & 1) * 2 * TILE;
    if (t + 1 < tiles) {
      load(next, k, k_at.l, (t + 1) * BC, BC, z.S, z.D);
      load(next + TILE, v, v_at.l, (t + 1) * BC, BC, z.S, z.D);
      commit();
      wait_for<1>();
    } else {
      wait_for<0>();
    }
    __syncthreads();
    float s[BC / 8][4], p[BC / 8][4];
    scores(s, queries, row, now, lane);
    scores(p, grads, row, now + TILE, lane);
    const int j0 = t * BC;
    const bool edge = j0 + BC > z.S || (CAUSAL && j0 + BC > i0 + row);
#pragma unroll
    for (int n = 0; n < BC / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e >> 1, j = j0 + n * 8 + lane % 4 * 2 + (e & 1);
        const float one = power(fmaf(s[n][e], to_log2, -base[half]));
        const bool none = edge && (j >= z.S || (CAUSAL && j > r0 + half * 8));
        s[n][e] = none ? 0 : one * (p[n][e] - mean[half]);
      }
    add(sums, s, now, lane);
    __syncthreads();
  }
  store(to_q, dq_at.l, sums, r0, z.L, z.D, z.scale, z.scale, lane);
}

// to_v = p' grad and to_k = scale (p * (grad v' - delta))' q, a block of keys a group: rows are keys here. Heads of
// queries that share one of keys are added in order.
extern "C" __global__ __launch_bounds__(THREADS) void to_keys(
    u16* to_k, u16* to_v, const u16* grad, const u16* q, const u16* k, const u16* v, const float* lse, const float* delta,
    At dk_at, At dv_at, At g_at, At q_at, At k_at, At v_at, At lse_at, Sizes z) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float bases[2][BC], means[2][BC];
  const int blocks = (z.S + ROWS - 1) / ROWS, block = blockIdx.x % blocks, groups = z.H / z.shared;
  const int h = blockIdx.x / blocks % groups, b = blockIdx.x / blocks / groups, j0 = block * ROWS;
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  k += b * k_at.b + h * k_at.h, v += b * v_at.b + h * v_at.h;
  to_k += b * dk_at.b + h * dk_at.h, to_v += b * dv_at.b + h * dv_at.h;
  const u32 keys = shared_address(memory), values = keys + ROWS * DP * 2, ring = values + ROWS * DP * 2;
  load(keys, k, k_at.l, j0, ROWS, z.S, z.D);
  load(values, v, v_at.l, j0, ROWS, z.S, z.D);
  const int first = CAUSAL ? j0 / BC : 0, tiles = (z.L + BC - 1) / BC, each = tiles > first ? tiles - first : 0;
  const int steps = each * z.shared;
  const auto bring = [&](int step) {
    const int head = h * z.shared + step / each, i0 = (first + step % each) * BC;
    const u32 to = ring + (step & 1) * 2 * TILE;
    load(to, q + b * q_at.b + head * q_at.h, q_at.l, i0, BC, z.L, z.D);
    load(to + TILE, grad + b * g_at.b + head * g_at.h, g_at.l, i0, BC, z.L, z.D);
    if (threadIdx.x < BC) {
      const int i = i0 + threadIdx.x;
      const float found = i < z.L ? lse[b * lse_at.b + head * lse_at.h + i * lse_at.l] : -INF;
      bases[step & 1][threadIdx.x] = found == -INF ? INF : found * 1.44269504f;
      means[step & 1][threadIdx.x] = i < z.L ? delta[((i64)b * z.H + head) * z.L + i] : 0;
    }
    commit();
  };
  if (steps) bring(0);
  float key_sums[DP / 8][4], value_sums[DP / 8][4];
#pragma unroll
  for (int n = 0; n < DP / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) key_sums[n][e] = value_sums[n][e] = 0;
  const float to_log2 = z.scale * 1.44269504f;
  const int r0 = j0 + row + lane / 4;
  for (int t = 0; t < steps; ++t) {
    const u32 now = ring + (t & 1) * 2 * TILE;
    if (t + 1 < steps) {
      bring(t + 1);
      wait_for<1>();
    } else {
      wait_for<0>();
    }
    __syncthreads();
    const int i0 = (first + t % each) * BC;
    float s[BC / 8][4], p[BC / 8][4];
    scores(s, keys, row, now, lane);
#pragma unroll
    for (int n = 0; n < BC / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int c = n * 8 + lane % 4 * 2 + (e & 1);
        const float one = power(fmaf(s[n][e], to_log2, -bases[t & 1][c]));
        s[n][e] = CAUSAL && r0 + (e >> 1) * 8 > i0 + c ? 0 : one;
      }
    add(value_sums, s, now + TILE, lane);
    scores(p, values, row, now + TILE, lane);
#pragma unroll
    for (int n = 0; n < BC / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int c = n * 8 + lane % 4 * 2 + (e & 1);
        s[n][e] = CAUSAL && r0 + (e >> 1) * 8 > i0 + c ? 0 : s[n][e] * (p[n][e] - means[t & 1][c]);
      }
    add(key_sums, s, now, lane);
    __syncthreads();
  }
  store(to_v, dv_at.l, value_sums, r0, z.S, z.D, 1, 1, lane);
  store(to_k, dk_at.l, key_sums, r0, z.S, z.D, z.scale, z.scale, lane);
}
)";

}  // namespace cuda
