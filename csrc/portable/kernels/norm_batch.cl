// Texts of norm_batch.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// scale_and_shift
  T scale = r, shift = 0;
#if WEIGHTED
  scale *= WEIGHT(c);
#endif
#if BIASED
  shift = BIAS(c);
#endif
