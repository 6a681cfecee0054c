// Texts of recurrent.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// sigmoid
#define SIGMOID(v) ((T)1 / ((T)1 + EXP(-(v))))

//// lstm
const idx g = r * 4 * hidden + j, at = r * hidden + j;
const T i = SIGMOID(gates_p[g]), f = SIGMOID(gates_p[g + hidden]);
const T n = TANH(gates_p[g + 2 * hidden]), o = SIGMOID(gates_p[g + 3 * hidden]);
const T c = f * cx_p[at] + i * n;
gates_p[g] = i, gates_p[g + hidden] = f, gates_p[g + 2 * hidden] = n, gates_p[g + 3 * hidden] = o;
cy_p[at] = c;
hy_p[at] = o * TANH(c);

//// lstm_backward
const idx g = r * 4 * hidden + j, at = r * hidden + j;
const T i = gates_p[g], f = gates_p[g + hidden], n = gates_p[g + 2 * hidden], o = gates_p[g + 3 * hidden];
const T t = TANH(cy_p[at]);
T dh = dh_p[at];
#if HAS_OUTPUT
dh += dout_p[at];
#endif
const T dc = dc_p[at] + dh * o * ((T)1 - t * t);
to_p[g] = dc * n * i * ((T)1 - i);
to_p[g + hidden] = dc * cx_p[at] * f * ((T)1 - f);
to_p[g + 2 * hidden] = dc * i * ((T)1 - n * n);
to_p[g + 3 * hidden] = dh * t * o * ((T)1 - o);
dc_p[at] = dc * f;

//// gru
const idx g = r * 3 * hidden + j, at = r * hidden + j;
const T s = SIGMOID(gates_p[g] + other_p[g]), z = SIGMOID(gates_p[g + hidden] + other_p[g + hidden]);
const T of_h = other_p[g + 2 * hidden], n = TANH(gates_p[g + 2 * hidden] + s * of_h);
gates_p[g] = s, gates_p[g + hidden] = z, gates_p[g + 2 * hidden] = n;
hidden_n_p[at] = of_h;
hy_p[at] = n + z * (hx_p[at] - n);

//// gru_backward
const idx g = r * 3 * hidden + j, at = r * hidden + j;
const T s = gates_p[g], z = gates_p[g + hidden], n = gates_p[g + 2 * hidden];
T dh = dh_p[at];
#if HAS_OUTPUT
dh += dout_p[at];
#endif
const T dn = dh * ((T)1 - z) * ((T)1 - n * n), ds = dn * hidden_n_p[at] * s * ((T)1 - s);
const T dz = dh * (hx_p[at] - n) * z * ((T)1 - z);
to_p[g] = ds, to_p[g + hidden] = dz, to_p[g + 2 * hidden] = dn;
other_p[g] = ds, other_p[g + hidden] = dz, other_p[g + 2 * hidden] = dn * s;
dh_p[at] = dh * z;

//// panels
for (idx i = 0; i < depth; ++i)
  for (idx l = 0; l < 16; ++l) to_p[(u * depth + i) * 16 + l] = w_p[i * by_row + (u * 16 + l) * by_column];

//// vectors_c: 16 columns; two halves, for GCC keeps vectors of 64 bytes in memory.
typedef f32 f32x8 __attribute__((vector_size(32)));
typedef f32 f32x8_at __attribute__((vector_size(32), aligned(4)));
typedef struct { f32x8 a, b; } V16;
static inline V16 v_load(const f32* p) { return (V16){*(const f32x8_at*)p, *(const f32x8_at*)(p + 8)}; }
static inline void v_store(f32* p, V16 v) { *(f32x8_at*)p = v.a; *(f32x8_at*)(p + 8) = v.b; }
static inline V16 v_add_times(V16 z, f32 x, V16 y) { return (V16){x * y.a + z.a, x * y.b + z.b}; }
#define NONE_16 ((V16){(f32x8){0}, (f32x8){0}})

//// vectors_open_cl
typedef f32x16 V16;
#define v_load(p) vload16(0, p)
#define v_store(p, v) vstore16(v, 0, p)
#define v_add_times(z, x, y) fma((f32x16)(x), y, z)
#define NONE_16 ((f32x16)(0))

//// steps: An item takes ROWS rows of the batch through all steps: none waits for another.
const idx r0 = u * ROWS, wide = 4 * hidden;
idx r[ROWS];
UNROLL for (int m = 0; m < ROWS; ++m) r[m] = r0 + m < batch ? r0 + m : r0;
const int some = batch - r0 < ROWS ? (int)(batch - r0) : ROWS;
for (idx k = 0; k < steps; ++k) {
  const idx t = REVERSE ? steps - 1 - k : k, before = REVERSE ? t + 1 : t - 1;
  GLOBAL f32* now = gates_p + t * batch * wide;
  GLOBAL const f32* h = k ? hy_p + before * batch * hidden : hx_p;
  GLOBAL const f32* c_before = k ? cy_p + before * batch * hidden : cx_p;
  for (idx j = 0; j < wide; j += 16) {
    GLOBAL const f32* w = weight_p + j * hidden;
    V16 sum[ROWS];
    UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_load(now + r[m] * wide + j);
    for (idx i = 0; i < hidden; ++i, w += 16) {
      const V16 by = v_load(w);
      UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_add_times(sum[m], h[r[m] * hidden + i], by);
    }
    UNROLL for (int m = 0; m < ROWS; ++m) if (m < some) v_store(now + r[m] * wide + j, sum[m]);
  }
  for (int m = 0; m < some; ++m) {
    GLOBAL f32* g = now + r[m] * wide;
    GLOBAL const f32* c = c_before + r[m] * hidden;
    GLOBAL f32* cell = cy_p + (t * batch + r[m]) * hidden;
    GLOBAL f32* out = hy_p + (t * batch + r[m]) * hidden;
    INDEPENDENT
    for (idx j = 0; j < hidden; ++j) {
      const f32 i = SIGMOID(g[j]), f = SIGMOID(g[j + hidden]);
      const f32 n = TANH(g[j + 2 * hidden]), o = SIGMOID(g[j + 3 * hidden]);
      const f32 v = f * c[j] + i * n;
      g[j] = i, g[j + hidden] = f, g[j + 2 * hidden] = n, g[j + 3 * hidden] = o;
      cell[j] = v;
      out[j] = o * TANH(v);
    }
  }
}

//// steps_backward: The same from the last step to the first.
const idx r0 = u * ROWS, wide = 4 * hidden;
idx r[ROWS];
UNROLL for (int m = 0; m < ROWS; ++m) r[m] = r0 + m < batch ? r0 + m : r0;
const int some = batch - r0 < ROWS ? (int)(batch - r0) : ROWS;
for (idx k = 0; k < steps; ++k) {
  const idx t = REVERSE ? k : steps - 1 - k, before = REVERSE ? t + 1 : t - 1;
  GLOBAL const f32* c_before = k + 1 < steps ? cy_p + before * batch * hidden : cx_p;
  GLOBAL f32* now = to_p + t * batch * wide;
  for (int m = 0; m < some; ++m) {
    GLOBAL const f32* g = gates_p + (t * batch + r[m]) * wide;
    GLOBAL const f32* c = c_before + r[m] * hidden;
    GLOBAL const f32* cell = cy_p + (t * batch + r[m]) * hidden;
    GLOBAL const f32* of_h = dh_p + r[m] * hidden;
    GLOBAL f32* of_c = dc_p + r[m] * hidden;
    GLOBAL f32* d = now + r[m] * wide;
#if HAS_OUTPUT
    GLOBAL const f32* of_out = dout_p + (t * batch + r[m]) * hidden;
#endif
    INDEPENDENT
    for (idx j = 0; j < hidden; ++j) {
      const f32 i = g[j], f = g[j + hidden], n = g[j + 2 * hidden], o = g[j + 3 * hidden], bent = TANH(cell[j]);
#if HAS_OUTPUT
      const f32 dh = of_h[j] + of_out[j];
#else
      const f32 dh = of_h[j];
#endif
      const f32 dc = of_c[j] + dh * o * (1 - bent * bent);
      d[j] = dc * n * i * (1 - i);
      d[j + hidden] = dc * c[j] * f * (1 - f);
      d[j + 2 * hidden] = dc * i * (1 - n * n);
      d[j + 3 * hidden] = dh * bent * o * (1 - o);
      of_c[j] = dc * f;
    }
  }
  for (idx j = 0; j < hidden; j += 16) {
    GLOBAL const f32* w = weight_p + j * wide;
    V16 sum[ROWS];
    UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = NONE_16;
    for (idx i = 0; i < wide; ++i, w += 16) {
      const V16 by = v_load(w);
      UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_add_times(sum[m], now[r[m] * wide + i], by);
    }
    UNROLL for (int m = 0; m < ROWS; ++m) if (m < some) v_store(dh_p + r[m] * hidden + j, sum[m]);
  }
}
