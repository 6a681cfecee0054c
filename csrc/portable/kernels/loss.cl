// Texts of loss.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// forward: An invalid class reads nothing, makes the loss NaN, and is reported.
//// Sample i is position i % plane of image i / plane; a plane of 1 makes rows. Parts of the samples are summed up by
//// themselves, and joined by the second kernel where there are several.
for (idx u = FIRST(parts), end = LAST(parts); u < end; u += STEP) {
  A loss = 0, weights = 0;
  for (idx i = samples * u / parts, past = samples * (u + 1) / parts; i < past; ++i) {
    const i64 t = target[i * target_stride];
    A one = 0;
    if (t != ignored) {
      if (t < 0 || t >= classes) {
        one = (A)NAN;
        TELL(OUT_OF_RANGE, t, classes);
      } else {
        A w = 1;
#if WEIGHTED
        w = LD_W(weight, t * weight_stride);
#endif
        one = -w * (A)LD_IN(in, AT(i) + t * s1);
        weights += w;
      }
    }
#if EACH
    ST_OUT(out, i * out_stride, one);
#endif
    loss += one;
  }
#if EACH
  if (u == 0) ST_OUT(total, 0, 0);
#elif PARTS
  sums[2 * u] = loss;
  sums[2 * u + 1] = weights;
#else
  ST_OUT(out, 0, MEAN ? loss / weights : loss);
  ST_OUT(total, 0, weights);
#endif
}

//// backward_elements: By items that run in parallel, an element each: neighbours are classes of a row, or positions of an image.
for (idx e = FIRST(samples * classes), end = LAST(samples * classes); e < end; e += STEP) {
  const idx i = IMAGES ? e / (plane * classes) * plane + e % plane : e / classes;
  const idx c = IMAGES ? e / plane % classes : e % classes;
  const i64 t = target[i * target_stride];
  A v = 0;
  if (t == c && t != ignored) {
    A w = 1, slope = LD_IN(grad, i * grad_stride);
#if WEIGHTED
    w = LD_W(weight, t * weight_stride);
#endif
    if (MEAN) slope /= (A)LD_IN(total, 0);
    v = -w * slope;
  }
  ST_OUT(out, AT(i) + c * s1, v);
}

//// join
if (item == 0) {
  A loss = 0, weights = 0;
  for (idx u = 0; u < parts; ++u) { loss += sums[2 * u]; weights += sums[2 * u + 1]; }
  ST_OUT(out, 0, MEAN ? loss / weights : loss);
  ST_OUT(total, 0, weights);
}

//// backward
for (idx i = FIRST(samples), end = LAST(samples); i < end; i += STEP) {
  const i64 t = target[i * target_stride];
  const idx at = AT(i);
  for (idx c = 0; c < classes; ++c) ST_OUT(out, at + c * s1, 0);
  if (t != ignored && t >= 0 && t < classes) {
    A w = 1, slope = LD_IN(grad, i * grad_stride);
#if WEIGHTED
    w = LD_W(weight, t * weight_stride);
#endif
    if (MEAN) slope /= (A)LD_IN(total, 0);
    ST_OUT(out, at + t * s1, -w * slope);
  }
}

//// forward_teams: A body for each part of the samples, which a whole group takes.
const idx from = samples * u / parts, n = samples * (u + 1) / parts - from;
A loss = 0, weights = 0, loss_low = 0, weights_low = 0;
for (idx j = place; j < n; j += TEAM) {
  const idx i = from + j;
  const i64 t = target[i * target_stride];
  A one = 0;
  if (t != ignored) {
    if (t < 0 || t >= classes) {
      one = (A)NAN;
      TELL(OUT_OF_RANGE, t, classes);
    } else {
      A w = 1;
#if WEIGHTED
      w = LD_W(weight, t * weight_stride);
#endif
      one = -w * (A)LD_IN(in, AT(i) + t * s1);
      ADD(weights, weights_low, w)
    }
  }
#if EACH_LOSS
  if (mine) ST_OUT(out, i * out_stride, one);
#else
  ADD(loss, loss_low, one)
#endif
}
#if EACH_LOSS
if (u == 0 && place == 0 && mine) ST_OUT(total, 0, 0);
#else
loss = team_sum(cells, LANE, TOTAL(loss, loss_low));
weights = team_sum(cells, LANE, TOTAL(weights, weights_low));
if (mine && place == 0) {
#if PARTS
  sums[2 * u] = loss;
  sums[2 * u + 1] = weights;
#else
  ST_OUT(out, 0, MEAN ? loss / weights : loss);
  ST_OUT(total, 0, weights);
#endif
}
#endif

//// join_teams
A loss = 0, weights = 0;
EACH(j) { loss += sums[2 * j]; weights += sums[2 * j + 1]; }
loss = team_sum(cells, LANE, loss);
weights = team_sum(cells, LANE, weights);
if (mine && place == 0) {
  ST_OUT(out, 0, MEAN ? loss / weights : loss);
  ST_OUT(total, 0, weights);
}
