// Texts of foreach_norm.cpp, in the dialect of docs/portable.md: `////` begins one, with its name.

//// fold: `acc` of what LOADED(i) is for from_ <= i < to_; on a GPU all items of the group have it in tree_[0]. ONE_MORE takes v,
//// MERGED is of acc and another accumulator w.
#ifdef IN_TURN
/* In several sums, so that the loop may become vectors. */
A sums_[16];
for (int l = 0; l < 16; ++l) sums_[l] = START;
idx at_ = from_;
for (; at_ + 16 <= to_; at_ += 16)
  for (int l = 0; l < 16; ++l) {
    const idx i = at_ + l;
    A acc = sums_[l];
    const A v = LOADED(i);
    { ONE_MORE }
    sums_[l] = acc;
  }
A acc = sums_[0];
for (int l = 1; l < 16; ++l) { const A w = sums_[l]; acc = MERGED; }
for (idx i = at_; i < to_; ++i) { const A v = LOADED(i); { ONE_MORE } }
#else
A acc = START;
for (idx i = from_ + LANE; i < to_; i += LANES) { const A v = LOADED(i); { ONE_MORE } }
tree_[LANE] = acc;
BARRIER;
for (idx half_ = LANES / 2; half_ > 0; half_ /= 2) {
  if (LANE < half_) { const A w = tree_[LANE + half_]; acc = MERGED; tree_[LANE] = acc; }
  BARRIER;
}
#endif
