// Texts of recurrent.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. A step and all steps at once
// have one arithmetic, of row `row` of step t: LSTM, GRU and STEPS say which, and with none of the first two it is a plain cell.

//// sigmoid
#define SIGMOID(v) ((T)1 / ((T)1 + EXP(-(v))))

//// cell_row: What the cells of a row have.
const idx at = (t * batch + row) * hidden;
GLOBAL T* g = gates_p + at * GATES;
GLOBAL T* out = hy_p + at;
#if LSTM
GLOBAL const T* c = c_before + row * hidden;
GLOBAL T* cell = cy_p + at;
#elif GRU
GLOBAL const T* h = h_before + row * hidden;
GLOBAL T* hidden_n = hidden_n_p + at;
#if STEPS
#define SUM(i) g[i]
#define OF_HIDDEN hidden_n[j]
#else
GLOBAL const T* other = other_p + at * GATES;
#define SUM(i) (g[i] + other[i])
#define OF_HIDDEN other[j + 2 * hidden]
#endif
#endif

//// cell
#if LSTM
const T i = SIGMOID(g[j]), f = SIGMOID(g[j + hidden]);
const T n = TANH(g[j + 2 * hidden]), o = SIGMOID(g[j + 3 * hidden]);
const T v = f * c[j] + i * n;
g[j] = i, g[j + hidden] = f, g[j + 2 * hidden] = n, g[j + 3 * hidden] = o;
cell[j] = v;
out[j] = o * TANH(v);
#elif GRU
const T of_h = OF_HIDDEN, s = SIGMOID(SUM(j)), z = SIGMOID(SUM(j + hidden));
const T n = TANH(g[j + 2 * hidden] + s * of_h);
g[j] = s, g[j + hidden] = z, g[j + 2 * hidden] = n;
hidden_n[j] = of_h;
out[j] = n + z * (h[j] - n);
#elif RELU
out[j] = g[j] < 0 ? 0 : g[j];
#else
out[j] = TANH(g[j]);
#endif

//// cell_row_backward
const idx at = (t * batch + row) * hidden;
GLOBAL T* d = to_p + at * GATES;
GLOBAL T* of_h = dh_p + row * hidden;
#if HAS_OUTPUT
GLOBAL const T* of_out = dout_p + at;
#define DH (of_h[j] + of_out[j])
#else
#define DH of_h[j]
#endif
#if LSTM
GLOBAL const T* g = gates_p + at * GATES;
GLOBAL const T* c = c_before + row * hidden;
GLOBAL const T* cell = cy_p + at;
GLOBAL T* of_c = dc_p + row * hidden;
#elif GRU
GLOBAL const T* g = gates_p + at * GATES;
GLOBAL const T* h = h_before + row * hidden;
GLOBAL const T* hidden_n = hidden_n_p + at;
GLOBAL T* d_hidden = other_p + at * GATES;
#else
GLOBAL const T* out = hy_p + at;
#endif

//// cell_backward: What goes through the product of a plain cell and of an LSTM's is all of the hidden state's gradient.
const T dh = DH;
#if LSTM
const T i = g[j], f = g[j + hidden], n = g[j + 2 * hidden], o = g[j + 3 * hidden], bent = TANH(cell[j]);
const T dc = of_c[j] + dh * o * ((T)1 - bent * bent);
d[j] = dc * n * i * ((T)1 - i);
d[j + hidden] = dc * c[j] * f * ((T)1 - f);
d[j + 2 * hidden] = dc * i * ((T)1 - n * n);
d[j + 3 * hidden] = dh * bent * o * ((T)1 - o);
of_c[j] = dc * f;
#elif GRU
const T s = g[j], z = g[j + hidden], n = g[j + 2 * hidden];
const T dn = dh * ((T)1 - z) * ((T)1 - n * n), ds = dn * hidden_n[j] * s * ((T)1 - s);
const T dz = dh * (h[j] - n) * z * ((T)1 - z);
d[j] = ds, d[j + hidden] = dz, d[j + 2 * hidden] = dn;
d_hidden[j] = ds, d_hidden[j + hidden] = dz, d_hidden[j + 2 * hidden] = dn * s;
of_h[j] = dh * z;
#elif RELU
d[j] = out[j] <= 0 ? 0 : dh;
#else
d[j] = dh * ((T)1 - out[j] * out[j]);
#endif

//// panels
for (idx i = 0; i < depth; ++i)
  for (idx l = 0; l < 16; ++l) to_p[(u * depth + i) * 16 + l] = w_p[i * by_row + (u * 16 + l) * by_column];

//// steps: An item takes ROWS rows of the batch through all steps: none waits for another. BODY is the cells of a row.
const idx r0 = u * ROWS, wide = GATES * hidden;
idx r[ROWS];
UNROLL for (int m = 0; m < ROWS; ++m) r[m] = r0 + m < batch ? r0 + m : r0;
const int some = batch - r0 < ROWS ? (int)(batch - r0) : ROWS;
for (idx k = 0; k < steps; ++k) {
  const idx t = REVERSE ? steps - 1 - k : k, before = REVERSE ? t + 1 : t - 1;
  GLOBAL f32* now = gates_p + t * batch * wide;
  GLOBAL const f32* h_before = k ? hy_p + before * batch * hidden : hx_p;
#if LSTM
  GLOBAL const f32* c_before = k ? cy_p + before * batch * hidden : cx_p;
#endif
  for (idx j = 0; j < wide; j += 16) {
    GLOBAL const f32* w = weight_p + j * hidden;
    GLOBAL f32* sums = now + j;
    idx apart = wide;
    V16 sum[ROWS];
    UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_load(sums + r[m] * wide);
#if GRU
    /* The reset gate is applied to the new gate's product, which the backward needs too. */
    if (j >= 2 * hidden) {
      sums = hidden_n_p + t * batch * hidden + (j - 2 * hidden), apart = hidden;
      UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_spread(0);
    }
#if HAS_BIAS
    const V16 bias = v_load(bias_p + j);
    UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_add(sum[m], bias);
#endif
#endif
    for (idx i = 0; i < hidden; ++i, w += 16) {
      const V16 by = v_load(w);
      UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_fma(v_spread(h_before[r[m] * hidden + i]), by, sum[m]);
    }
    UNROLL for (int m = 0; m < ROWS; ++m) if (m < some) v_store(sums + r[m] * apart, sum[m]);
  }
  for (int m = 0; m < some; ++m) {
    const idx row = r[m];
BODY
  }
}

//// steps_backward: The same from the last step to the first.
const idx r0 = u * ROWS, wide = GATES * hidden;
idx r[ROWS];
UNROLL for (int m = 0; m < ROWS; ++m) r[m] = r0 + m < batch ? r0 + m : r0;
const int some = batch - r0 < ROWS ? (int)(batch - r0) : ROWS;
for (idx k = 0; k < steps; ++k) {
  const idx t = REVERSE ? k : steps - 1 - k, before = REVERSE ? t + 1 : t - 1;
#if LSTM
  GLOBAL const f32* c_before = k + 1 < steps ? cy_p + before * batch * hidden : cx_p;
#elif GRU
  GLOBAL const f32* h_before = k + 1 < steps ? hy_p + before * batch * hidden : hx_p;
#endif
  for (int m = 0; m < some; ++m) {
    const idx row = r[m];
BODY
  }
#if GRU
  GLOBAL const f32* now = other_p + t * batch * wide;
#else
  GLOBAL const f32* now = to_p + t * batch * wide;
#endif
  for (idx j = 0; j < hidden; j += 16) {
    GLOBAL const f32* w = weight_p + j * wide;
    V16 sum[ROWS];
#if GRU
    UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_load(dh_p + r[m] * hidden + j);
#else
    UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_spread(0);
#endif
    for (idx i = 0; i < wide; ++i, w += 16) {
      const V16 by = v_load(w);
      UNROLL for (int m = 0; m < ROWS; ++m) sum[m] = v_fma(v_spread(now[r[m] * wide + i]), by, sum[m]);
    }
    UNROLL for (int m = 0; m < ROWS; ++m) if (m < some) v_store(dh_p + r[m] * hidden + j, sum[m]);
  }
}
