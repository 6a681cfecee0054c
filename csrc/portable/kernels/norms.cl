// Texts of norms.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. T computes, A adds up.

//// sums: in stretches of ABREAST sums, whose parts are added wide
/* Adds to `a` the sum of `of_a` over j < n, which may use j and `i`, of which `at` is the place. */
#define SUM(a, of_a, at) \
  for (idx j0 = 0; j0 < n; j0 += STRETCH) { \
    const idx past = n - j0 < STRETCH ? n : j0 + STRETCH; \
    T lanes_##a[ABREAST]; \
    idx j_ = j0; \
    for (int l = 0; l < ABREAST; ++l) { lanes_##a[l] = 0; } \
    for (; j_ + ABREAST <= past; j_ += ABREAST) \
      for (int l = 0; l < ABREAST; ++l) { const idx j = j_ + l, i = at; (void)i; lanes_##a[l] += of_a; } \
    for (; j_ < past; ++j_) { const idx j = j_, i = at; (void)i; lanes_##a[0] += of_a; } \
    for (int l = 0; l < ABREAST; ++l) { a += (A)lanes_##a[l]; } \
  }
/* The same of two sums. */
#define SUM_BOTH(a, of_a, b, of_b, at) \
  for (idx j0 = 0; j0 < n; j0 += STRETCH) { \
    const idx past = n - j0 < STRETCH ? n : j0 + STRETCH; \
    T lanes_##a[ABREAST]; \
    T lanes_##b[ABREAST]; \
    idx j_ = j0; \
    for (int l = 0; l < ABREAST; ++l) { lanes_##a[l] = 0; lanes_##b[l] = 0; } \
    for (; j_ + ABREAST <= past; j_ += ABREAST) \
      for (int l = 0; l < ABREAST; ++l) { \
        const idx j = j_ + l, i = at; \
        (void)i; \
        lanes_##a[l] += of_a; \
        lanes_##b[l] += of_b; \
      } \
    for (; j_ < past; ++j_) { const idx j = j_, i = at; (void)i; lanes_##a[0] += of_a; lanes_##b[0] += of_b; } \
    for (int l = 0; l < ABREAST; ++l) { a += (A)lanes_##a[l]; b += (A)lanes_##b[l]; } \
  }

//// team_sums: The same by a team, of all its items together, behind the texts of rows.cl: each item of a group must come here.
/* `first` is done for each element: what both sums use, and what is kept of it by HOLD for later. */
#define SUM(a, of_a, at, first) { \
    A low_##a = 0; \
    EACH(j) { \
      const idx i = at; \
      (void)i; \
      first \
      ADD(a, low_##a, of_a) \
    } \
    a = team_sum(cells, LANE, TOTAL(a, low_##a)); \
  }
#define SUM_BOTH(a, of_a, b, of_b, at, first) { \
    A low_##a = 0, low_##b = 0; \
    EACH(j) { \
      const idx i = at; \
      (void)i; \
      first \
      ADD(a, low_##a, of_a) \
      ADD(b, low_##b, of_b) \
    } \
    a = team_sum(cells, LANE, TOTAL(a, low_##a)); \
    b = team_sum(cells, LANE, TOTAL(b, low_##b)); \
  }
