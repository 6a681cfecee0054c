// Operators of other libraries than torch, named in extension "operators.v1": a step of one made for this chip, and
// torchvision's choice among boxes, whose result has a shape that only the data know.
#include <algorithm>
#include <numeric>

#include "ops/loop.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

// simkit::axpy(Tensor x, Tensor y, float a) -> Tensor: a * x + y, of one shape.
template <class T>
cw_status axpy_in(Call& call, const Tensor& out, const Tensor& x, const Tensor& y) {
  const Tensor* all[] = {&out, &x, &y};
  Rows<3> rows;
  if (!rows.make(all)) return call.declined("only of one shape");
  const T a = call.number<T>(3);
  return call.launch([rows, a] {
    map_rows<T, 2>(rows, [a](T x_value, T y_value) { return a * x_value + y_value; });
    return CW_OK;
  });
}

cw_status axpy(Call& call) {
  Tensor out, x, y;
  TRY(call.tensors_from(0, &out, &x, &y));
  return out.dtype == kDouble ? axpy_in<double>(call, out, x, y) : axpy_in<float>(call, out, x, y);
}

// Of boxes [n, 4] the best ones: none overlaps a better one by more than the threshold, as a share of their union.
template <class T>
std::vector<int64_t> best_boxes(const T* box, const T* score, int64_t n, double threshold) {
  std::vector<int64_t> order(n), kept;
  std::iota(order.begin(), order.end(), int64_t(0));
  std::stable_sort(order.begin(), order.end(), [score](int64_t i, int64_t j) { return score[i] > score[j]; });
  const auto area = [box](int64_t i) { return (box[4 * i + 2] - box[4 * i]) * (box[4 * i + 3] - box[4 * i + 1]); };
  const auto overlap = [&](int64_t i, int64_t j) {
    const T *a = box + 4 * i, *b = box + 4 * j;
    const T width = std::min(a[2], b[2]) - std::max(a[0], b[0]), height = std::min(a[3], b[3]) - std::max(a[1], b[1]);
    const T both = std::max(T(0), width) * std::max(T(0), height);
    return both / (area(i) + area(j) - both);
  };
  for (int64_t i : order) {
    if (std::none_of(kept.begin(), kept.end(), [&](int64_t j) { return overlap(j, i) > threshold; })) kept.push_back(i);
  }
  return kept;
}

// torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
cw_status nms(Call& call) {
  Tensor out, boxes, scores;
  TRY(call.tensors_from(0, &out, &boxes, &scores));
  if (boxes.ndim != 2 || boxes.shape[1] != 4 || scores.ndim != 1 || scores.shape[0] != boxes.shape[0]) {
    return call.declined("only of boxes [n, 4] and n scores");  // torchvision has the words
  }
  if (!is_floating(boxes.dtype) || boxes.dtype != scores.dtype)
    return call.declined("only of boxes and scores of one floating-point dtype");
  TRY(call.wait());
  const int64_t n = boxes.shape[0];
  const double threshold = call.number<double>(3);
  const auto best = [&](auto zero) {
    using T = decltype(zero);
    return best_boxes(reinterpret_cast<const T*>(boxes.data), reinterpret_cast<const T*>(scores.data), n, threshold);
  };
  const std::vector<int64_t> kept = boxes.dtype == kDouble ? best(double()) : best(float());
  TRY(call.resize(0, {int64_t(kept.size())}));
  TRY(call.tensor(0, &out));  // it may have moved
  return call.launch([=] {
    for (size_t i = 0; i < kept.size(); ++i) {
      store_one(out.data + int64_t(i) * out.stride_bytes(0), kept[i], kInt64);
    }
    return CW_OK;
  });
}

}  // namespace

const char* const library_names = "simkit::axpy\ntorchvision::nms\n";

const OpList& library_ops() {
  static const OpList list = {
      {"simkit::axpy", axpy, CW_FLOAT32 | CW_FLOAT64 | CW_FLOAT16 | CW_BFLOAT16, CW_NEEDS_ELEMENTS},
      {"torchvision::nms", nms, CW_FLOAT32 | CW_FLOAT64 | CW_INT64, CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS},
  };
  return list;
}

}  // namespace sim
