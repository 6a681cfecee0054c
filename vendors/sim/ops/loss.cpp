// The negative log likelihood of classes, as cross_entropy ends with, and its gradient; and mean squared error.
#include "ops/loop.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

enum Reduce : int64_t { each = 0, mean = 1, sum = 2 };  // torch's at::Reduction

struct Nll {
  Tensor in, target, weight;  // in: samples x classes, or classes alone
  bool has_weight = false;
  int64_t reduction = mean, ignored = -100;
  int64_t samples = 1, classes = 0;

  cw_status read(const Call& call, int at) {
    TRY(call.tensors_from(at, &in, &target));
    has_weight = !call.is_none(at + 2);
    if (has_weight) TRY(call.tensor(at + 2, &weight));
    reduction = call.integer(at + 3, mean);
    ignored = call.integer(at + 4, -100);
    if (in.ndim < 1 || in.ndim > 2 || target.ndim != in.ndim - 1) return call.declined("1 or 2 dimensions");
    if (target.dtype != kInt64 || target.is_host_scalar) return call.declined("int64 targets on the device");
    classes = in.shape[in.ndim - 1];
    if (in.ndim == 2) samples = in.shape[0];
    return CW_OK;
  }
  int64_t target_of(int64_t sample) const {
    return load_one<int64_t>(target.data + (target.ndim ? sample * target.stride_bytes(0) : 0), target.dtype);
  }
  double weight_of(int64_t target_class) const {
    return has_weight ? load_one<double>(weight.data + target_class * weight.stride_bytes(0), weight.dtype) : 1.0;
  }
  int64_t offset(const Tensor& t, int64_t sample, int64_t target_class) const {
    return (t.ndim == 2 ? sample * t.stride_bytes(0) : 0) + target_class * t.stride_bytes(t.ndim - 1);
  }
  cw_status bad_target(const char* op, int64_t target_class) const {
    return fail(CW_FAILED, "%s: target %lld is out of bounds, there are %lld classes", op,
                static_cast<long long>(target_class), static_cast<long long>(classes));
  }
};

// output, total_weight, self, target, weight, reduction, ignore_index
cw_status nll_loss(Call& call) {
  Tensor out, total_weight;
  TRY(call.tensors_from(0, &out, &total_weight));
  Nll p;
  TRY(p.read(call, 2));
  return call.launch([=] {
    double loss = 0, weights = 0;
    const bool kept = p.reduction == each && out.ndim == 1;
    for (int64_t sample = 0; sample < p.samples; ++sample) {
      const int64_t target = p.target_of(sample);
      double one = 0;
      if (target != p.ignored) {
        if (target < 0 || target >= p.classes) return p.bad_target("aten::nll_loss_forward.output", target);
        const double weight = p.weight_of(target);
        one = -weight * load_one<double>(p.in.data + p.offset(p.in, sample, target), p.in.dtype);
        weights += weight;
      }
      if (kept) store_one(out.data + sample * out.stride_bytes(0), one, out.dtype);
      loss += one;
    }
    if (!kept) store_one(out.data, p.reduction == mean ? loss / weights : loss, out.dtype);
    store_one(total_weight.data, kept ? 0.0 : weights, total_weight.dtype);
    return CW_OK;
  });
}

// grad_input, grad_output, self, target, weight, reduction, ignore_index, total_weight
cw_status nll_loss_backward(Call& call) {
  Tensor out, grad, total_weight;
  TRY(call.tensors_from(0, &out, &grad));
  Nll p;
  TRY(p.read(call, 2));
  TRY(call.tensor(7, &total_weight));
  if (out.ndim != p.in.ndim || grad.is_host_scalar || !out.contiguous()) return call.declined("dense tensors");
  return call.launch([=] {
    memset(out.data, 0, size_t(out.numel() * size_of(out.dtype)));
    const double all = load_one<double>(total_weight.data, total_weight.dtype);
    for (int64_t sample = 0; sample < p.samples; ++sample) {
      const int64_t target = p.target_of(sample);
      if (target == p.ignored) continue;
      if (target < 0 || target >= p.classes) return p.bad_target("aten::nll_loss_backward.grad_input", target);
      double slope = load_one<double>(grad.data + (grad.ndim ? sample * grad.stride_bytes(0) : 0), grad.dtype);
      if (p.reduction == mean) slope /= all;
      store_one(out.data + p.offset(out, sample, target), -p.weight_of(target) * slope, out.dtype);
    }
    return CW_OK;
  });
}

// out, self, target, reduction
cw_status mse_loss(Call& call) {
  Tensor out, a, b;
  TRY(call.tensors_from(0, &out, &a, &b));
  const int64_t reduction = call.integer(3, mean);
  auto work = [&](auto example) -> cw_status {
    using C = decltype(example);
    auto square = [](C x, C y) { return (x - y) * (x - y); };
    if (reduction == each) {
      Rows<3> rows;
      if (!rows.make({&out, &a, &b})) return fail(CW_INVALID, "%s: shapes", call.op().name);
      return call.launch([=] { return map_rows<C, 2>(rows, square), CW_OK; });
    }
    Rows<2> rows;
    if (a.ndim != b.ndim || !rows.make({&a, &b})) return call.declined("shapes that broadcast");
    return call.launch([=] {
      double total = 0;
      C x[block], y[block];
      rows.each([&](const char* const* at, int64_t n) {
        for (int64_t start = 0; start < n; start += block) {
          const int64_t m = std::min(block, n - start);
          load(x, at[0] + start * rows.stride[0][0], rows.stride[0][0], m, rows.dtype[0]);
          load(y, at[1] + start * rows.stride[1][0], rows.stride[1][0], m, rows.dtype[1]);
          for (int64_t i = 0; i < m; ++i) total += double(square(x[i], y[i]));
        }
      });
      store_one(out.data, reduction == mean ? total / double(a.numel()) : total, out.dtype);
      return CW_OK;
    });
  };
  return a.dtype == kDouble ? work(double{}) : work(float{});
}

}  // namespace

const OpList& loss_ops() {
  static const OpList list = {
      {"aten::nll_loss_forward.output", nll_loss, floats | CW_INT64, 0, 2},
      {"aten::nll_loss_backward.grad_input", nll_loss_backward, floats | CW_INT64},
      {"aten::mse_loss.out", mse_loss, floats},
  };
  return list;
}

}  // namespace sim
