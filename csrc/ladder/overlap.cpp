// torch answers "too hard" for every tensor with gaps, and its kernels for the CPU then go on in their order. A vendor's
// kernel has another order, or works on a dense copy, so here it must be known.
#include "ladder/overlap.h"

#include <algorithm>
#include <numeric>

#include <c10/util/SmallVector.h>

namespace causeway {

namespace {

constexpr int kMostSteps = 2000;  // of the search: some 10 us

struct Term {
  int64_t stride;
  int64_t most;  // its factor is 0 to `most`
};
using Terms = c10::SmallVector<Term, 12>;

Terms terms_of(const at::Tensor& t) {
  Terms terms;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) > 1) terms.push_back({t.stride(d), t.size(d) - 1});
  return terms;
}

// Whether `sum` can be made of the terms from `i` on, the largest stride first. `reach[i]` is the most that they make,
// `divisor[i]` what divides all of it.
bool makes(const Terms& terms, const c10::SmallVectorImpl<int64_t>& reach, const c10::SmallVectorImpl<int64_t>& divisor,
           size_t i, int64_t sum, int* steps) {
  if (sum == 0) return true;
  if (i == terms.size() || sum < 0 || sum > reach[i] || sum % divisor[i]) return false;
  const auto [stride, most] = terms[i];
  const int64_t rest = i + 1 < terms.size() ? reach[i + 1] : 0;
  const int64_t first = std::max<int64_t>(0, (sum - rest + stride - 1) / stride);
  for (int64_t k = std::min(most, sum / stride); k >= first; --k) {
    if (--*steps < 0) return true;
    if (makes(terms, reach, divisor, i + 1, sum - k * stride, steps)) return true;
  }
  return false;
}

}  // namespace

bool overlaps_itself(const at::Tensor& t) {
  if (t.numel() < 2 || t.is_non_overlapping_and_dense()) return false;
  Terms terms = terms_of(t);
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.stride < b.stride; });
  int64_t reach = 0;  // of the smaller strides: each next one must step over it
  for (const Term& term : terms) {
    if (term.stride <= reach) return true;
    reach += term.stride * term.most;
  }
  return false;
}

at::MemOverlapStatus overlap_of(const at::Tensor& a, const at::Tensor& b) {
  const auto status = at::get_overlap_status(a, b);
  if (status != at::MemOverlapStatus::TooHard) return status;
  if (a.const_data_ptr() == b.const_data_ptr() && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
      a.strides() == b.strides())
    return at::MemOverlapStatus::Full;
  // Element i of `a` is element j of `b`, byte p of the one being byte q of the other:
  // sum(i s) + p = gap + sum(j t) + q. With j counted from the end all is positive.
  const int64_t a_item = a.itemsize(), b_item = b.itemsize();
  int64_t sum = static_cast<const char*>(b.const_data_ptr()) - static_cast<const char*>(a.const_data_ptr());
  Terms terms;
  for (Term t : terms_of(a)) terms.push_back({t.stride * a_item, t.most});
  for (Term t : terms_of(b)) {
    terms.push_back({t.stride * b_item, t.most});
    sum += t.stride * b_item * t.most;
  }
  // Whole elements of one size meet whole or not at all, where all steps are of that size.
  const bool aligned = a_item == b_item && sum % a_item == 0;
  if (!aligned) {
    if (a_item > 1) terms.push_back({1, a_item - 1});
    if (b_item > 1) {
      terms.push_back({1, b_item - 1});
      sum += b_item - 1;
    }
  }
  std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
  Terms merged;
  for (Term t : terms)
    if (t.stride == 0)
      continue;
    else if (!merged.empty() && merged.back().stride == t.stride)
      merged.back().most += t.most;
    else
      merged.push_back(t);
  c10::SmallVector<int64_t, 12> reach(merged.size()), divisor(merged.size());
  int64_t most = 0, common = 0;
  for (size_t i = merged.size(); i-- > 0;) {
    reach[i] = most += merged[i].stride * merged[i].most;
    divisor[i] = common = std::gcd(common, merged[i].stride);
  }
  int steps = kMostSteps;
  return makes(merged, reach, divisor, 0, sum, &steps) ? at::MemOverlapStatus::Partial : at::MemOverlapStatus::No;
}

}  // namespace causeway
