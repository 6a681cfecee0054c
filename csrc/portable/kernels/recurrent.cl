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
