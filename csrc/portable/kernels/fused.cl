// Texts of fused.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. Bodies for each element i of each
// tensor, whose number is k_: t0(i), t1(i) .. are the elements of the lists, t0_set(i, v) .. store one.

//// gradient: GRADIENT is what g is before the step: unscaled, turned around. `continue` leaves out one element; all are looked
//// at where the step is to be left out, which is rare.
#if FINDS
#define UNLESS_FOUND if (found_inf != (T)0) continue;
#else
#define UNLESS_FOUND
#endif
#if SCALED
#define UNSCALE g = g / grad_scale; t1_set(i, g);
#else
#define UNSCALE
#endif
#if MAXIMIZES
#define TURN_AROUND g = -g;
#else
#define TURN_AROUND
#endif
#define GRADIENT UNLESS_FOUND T g = t1(i); UNSCALE TURN_AROUND

//// corrections: EACH is CORRECTED of each tensor: lr / (1 - beta1^step), sqrt(1 - beta2^step).
#define CORRECTED(k) \
  { \
    const T s = s##k(0); \
    c_set(2 * k, lr / ((T)1 - pow(beta1, s))); \
    c_set(2 * k + 1, sqrt((T)1 - pow(beta2, s))); \
  }
EACH

//// adam
GRADIENT
T w = t0(i), m = t2(i), v = t3(i);
#if DECAYS && DECOUPLED
w = w * ((T)1 - lr * decay);
#elif DECAYS
g = g + w * decay;
#endif
m = m + (g - m) * rest1; v = v * beta2 + rest2 * g * g;
t2_set(i, m); t3_set(i, v);
#if AMSGRAD
v = MAXIMUM(t4(i), v); t4_set(i, v);
#endif
t0_set(i, w - corrections(2 * k_) * m / (sqrt(v) / corrections(2 * k_ + 1) + eps));

//// sgd
GRADIENT
const T w = t0(i);
#if DECAYS
g = g + w * decay;
#endif
#if MOMENTUM
#if FIRST_STEP
const T b = g;
#else
const T b = momentum * t2(i) + rest * g;
#endif
t2_set(i, b);
#if NESTEROV
g = g + momentum * b;
#else
g = b;
#endif
#endif
t0_set(i, w - lr * g);

//// adagrad
GRADIENT
const T w = t0(i);
#if DECAYS
g = g + w * decay;
#endif
const T s = t2(i) + g * g;
t2_set(i, s);
t0_set(i, w - lr / ((T)1 + ((T)t3(0) - (T)1) * slower) * g / (sqrt(s) + eps));

//// unscale
const T g = t0(i);
if (g - g != g - g) found_set(0, 1);
t0_set(i, g * by(0));

//// update_scale
if (found(0) != 0) { scale_set(0, (f32)(scale(0) * backoff)); tracker_set(0, 0); continue; }
const i32 successful = tracker(0) + 1;
if (successful < interval) { tracker_set(0, successful); continue; }
const f32 grown = (f32)(scale(0) * growth);
if (grown - grown == grown - grown) scale_set(0, grown);
tracker_set(0, 0);
