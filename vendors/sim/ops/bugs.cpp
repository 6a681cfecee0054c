// The table at the end says which operator each mistake is made in. Most are the right kernel with something done to
// its arguments before, or to its result after, in the stream's order.
#include "ops/bugs.hpp"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "ops/loop.hpp"

namespace sim {

namespace {

struct Planted {
  const OpDef& op;
  const cw_arg* args;
  int32_t n;
  Device& device;
  cw_stream stream;

  Call call() const { return Call(op, args, n, device, stream); }
  cw_status right() const {
    Call one = call();
    return op.run(one);
  }
  cw_status right_with(const std::vector<cw_arg>& other) const {
    Call one(op, other.data(), int32_t(other.size()), device, stream);
    return op.run(one);
  }
  std::vector<cw_arg> copy() const { return std::vector<cw_arg>(args, args + n); }
};

// f(address, position in row-major order) for each element.
template <class F>
void each_element(const Tensor& t, F f) {
  if (!t.data) return;
  int64_t index[most_dims] = {};
  const int64_t count = t.numel();
  for (int64_t i = 0; i < count; ++i) {
    char* element = t.data;
    for (int d = 0; d < t.ndim; ++d) element += index[d] * t.stride_bytes(d);
    f(element, i);
    for (int d = t.ndim - 1; d >= 0 && ++index[d] == t.shape[d]; --d) index[d] = 0;
  }
}

// The right kernel, then `change(out)` behind it on the stream.
template <class F>
cw_status then(const Planted& p, F change) {
  TRY(p.right());
  Call call = p.call();
  Tensor out;
  TRY(call.tensor(0, &out));
  return call.launch([=] { return change(out), CW_OK; });
}

cw_status unstable_sort(const Planted& p) {
  TRY(p.right());
  Call call = p.call();
  Tensor values, indices;
  TRY(call.tensors_from(0, &values, &indices));
  const int64_t dim = call.integer(4, -1);
  const int along = int(dim < 0 ? dim + values.ndim : dim);
  if (values.ndim == 0) return CW_OK;
  return call.launch([=] {
    const int64_t step = values.stride_bytes(along), index_step = indices.stride_bytes(along);
    std::vector<char*> places;
    each_element(indices, [&](char* at, int64_t) { places.push_back(at); });
    int64_t k = 0, inner = 1;
    for (int d = along + 1; d < values.ndim; ++d) inner *= values.shape[d];
    each_element(values, [&](char* at, int64_t i) {
      char* place = places[size_t(k++)];
      if (i / inner % values.shape[along] == 0) return;
      if (load_one<double>(at, values.dtype) != load_one<double>(at - step, values.dtype)) return;
      const int64_t here = load_one<int64_t>(place, kInt64), before = load_one<int64_t>(place - index_step, kInt64);
      store_one(place, before, kInt64);
      store_one(place - index_step, here, kInt64);
    });
    return CW_OK;
  });
}

cw_status one_in_10000(const Planted& p) {
  return then(p, [](const Tensor& out) {
    each_element(out, [&](char* at, int64_t i) {
      if (i % 10000 == 9999) store_one(at, load_one<double>(at, out.dtype) + 1, out.dtype);
    });
  });
}

cw_status ignores_strides(const Planted& p) {
  std::vector<cw_arg> args = p.copy();
  DLTensor in = *args[1].v.tensor;
  int64_t dense[most_dims], step = 1;
  for (int d = in.ndim - 1; d >= 0; --d) {
    dense[d] = in.shape[d] == 1 ? 1 : step;
    step *= in.shape[d];
  }
  in.strides = dense;
  args[1].v.tensor = &in;
  Call call(p.op, args.data(), p.n, p.device, p.stream);
  Tensor tensor;
  if (call.tensor(1, &tensor) != CW_OK) return p.right();  // it would leave the allocation
  return p.right_with(args);
}

cw_status out_of_bounds(const Planted& p) {
  return then(p, [](const Tensor& out) {
    char* last = nullptr;
    each_element(out, [&](char* at, int64_t) { last = std::max(last, at); });
    // The end of an allocation is left alone: the process would not live to be told.
    if (last && reinterpret_cast<uintptr_t>(last + size_of(out.dtype)) % 512 != 0) {
      store_one(last + size_of(out.dtype), 1.0, out.dtype);
    }
  });
}

cw_status ignores_alpha(const Planted& p) {
  std::vector<cw_arg> args = p.copy();
  args[3].tag = CW_INT;
  args[3].v.i = 1;
  return p.right_with(args);
}

cw_status narrow_sum(const Planted& p) {
  return then(p, [](const Tensor& out) {
    if (out.dtype != kInt64) return;
    each_element(out,
                 [](char* at, int64_t) { store_one(at, int64_t(int32_t(load_one<int64_t>(at, kInt64))), kInt64); });
  });
}

cw_status missing_wait(const Planted& p) { return p.right(); }  // stream.cpp asks skips_wait()

cw_status half_accumulation(const Planted& p) {
  Call call = p.call();
  Tensor out, a, b;
  TRY(call.tensors_from(0, &out, &a, &b));
  if (out.dtype != kHalf && out.dtype != kBFloat16) return p.right();
  return call.launch([=] {
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      for (int64_t j = 0; j < out.shape[1]; ++j) {
        alignas(8) char sum[8] = {};
        for (int64_t k = 0; k < a.shape[1]; ++k) {
          const float x = load_one<float>(a.data + i * a.stride_bytes(0) + k * a.stride_bytes(1), a.dtype);
          const float y = load_one<float>(b.data + k * b.stride_bytes(0) + j * b.stride_bytes(1), b.dtype);
          store_one(sum, load_one<float>(sum, out.dtype) + x * y, out.dtype);
        }
        store_one(out.data + i * out.stride_bytes(0) + j * out.stride_bytes(1), load_one<float>(sum, out.dtype),
                  out.dtype);
      }
    }
    return CW_OK;
  });
}

cw_status loses_nan(const Planted& p) {
  return then(p, [](const Tensor& out) {
    if (!is_floating(out.dtype)) return;
    each_element(out, [&](char* at, int64_t) {
      if (std::isnan(load_one<double>(at, out.dtype))) store_one(at, 0.0, out.dtype);
    });
  });
}

// The product first, into the output; then `self`, which may be the output.
cw_status aliasing(const Planted& p) {
  Call call = p.call();
  Tensor out, in[3];
  TRY(call.tensors_from(0, &out, &in[0], &in[1], &in[2]));
  for (const Tensor& t : in) {
    if (t.is_host_scalar || t.dtype != out.dtype || !(wide_floats >> t.dtype & 1)) return p.right();
  }
  Rows<4> rows;
  if (!rows.make({&out, &in[0], &in[1], &in[2]})) return p.right();
  const double value = call.number<double>(4, 1.0);
  return call.launch([=] {
    for (int pass = 0; pass < 2; ++pass) {
      rows.each([&](const char* const* at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          double x[4];
          for (int k = 0; k < 4; ++k) x[k] = load_one<double>(at[k] + i * rows.stride[k][0], rows.dtype[k]);
          store_one(const_cast<char*>(at[0]) + i * rows.stride[0][0], pass ? x[0] + x[1] : value * x[2] * x[3],
                    rows.dtype[0]);
        }
      });
    }
    return CW_OK;
  });
}

cw_status mutates_input(const Planted& p) {
  Call call = p.call();
  Tensor in;
  TRY(call.tensor(1, &in));
  return then(p, [in](const Tensor& out) {
    if (in.data && in.data != out.data) store_one(in.data, 0.5, in.dtype);
  });
}

// Sums start from what the workspace holds, which is zero in memory that nobody used yet.
cw_status stale_workspace(const Planted& p) {
  TRY(p.right());
  Call call = p.call();
  Tensor out;
  TRY(call.tensor(0, &out));
  if (!is_floating(out.dtype) || out.numel() == 0) return CW_OK;
  char* lent = nullptr;
  TRY(call.scratch(uint64_t(out.numel()) * sizeof(float), &lent));
  return call.launch([=] {
    float* sums = reinterpret_cast<float*>(lent);
    each_element(out, [&](char* at, int64_t i) {
      if (sums[i] != 0) store_one(at, load_one<double>(at, out.dtype) + double(sums[i]), out.dtype);
      sums[i] = load_one<float>(at, out.dtype);
    });
    return CW_OK;
  });
}

cw_status same_numbers(const Planted& p) {
  std::vector<cw_arg> args = p.copy();
  cw_philox start = *args[3].v.philox;
  start.offset = 0;
  args[3].v.philox = &start;
  return p.right_with(args);
}

cw_status flushes_subnormals(const Planted& p) {
  return then(p, [](const Tensor& out) {
    if (out.dtype != kFloat) return;
    each_element(out, [](char* at, int64_t) {
      if (load_one<float>(at, kFloat) < std::numeric_limits<float>::min()) store_one(at, 0.0f, kFloat);
    });
  });
}

cw_status wrong_backward(const Planted& p) {
  return then(p, [](const Tensor& out) {
    each_element(out, [&](char* at, int64_t) { store_one(at, load_one<double>(at, out.dtype) * 1.01, out.dtype); });
  });
}

cw_status wrong_step(const Planted& p) {
  std::vector<cw_arg> args = p.copy();
  args[4].v.d = p.call().number<double>(4, 1.0) * 1.01;
  args[4].tag = CW_DOUBLE;
  return p.right_with(args);
}

cw_status late_error(const Planted& p) {
  static std::atomic<int> calls{0};
  if (++calls % 37 != 0) return p.right();
  return then(p, [](const Tensor& out) {
    each_element(out, [&](char* at, int64_t) { store_one(at, load_one<double>(at, out.dtype) * 1.01, out.dtype); });
  });
}

// A tensor of `ndim` dimensions whose second one is the innermost in memory: torch's channels_last.
bool is_channels_last(const DLTensor* t, int ndim) {
  if (!t || t->ndim != ndim || t->shape[1] < 2 || t->strides[1] != 1) return false;
  for (int d = 2; d + 1 < ndim; ++d) {
    if (t->strides[d] < t->strides[d + 1]) return false;
  }
  return t->strides[ndim - 1] >= t->shape[1];
}

// The right kernel but where a tensor is in channels_last: the last element of the output is then wrong.
cw_status with_channels_last(const Planted& p, int ndim) {
  bool found = false;
  for (int32_t k = 0; k < p.n; ++k) {
    const cw_arg& arg = p.args[k];
    if (arg.tag == CW_TENSOR) found = found || is_channels_last(arg.v.tensor, ndim);
    for (uint32_t i = 0; arg.tag == CW_TENSOR_LIST && i < arg.n; ++i) {
      found = found || is_channels_last(arg.v.tensors[i], ndim);
    }
  }
  if (!found) return p.right();
  return then(p, [](const Tensor& out) {
    char* last = nullptr;
    each_element(out, [&](char* at, int64_t) { last = at; });
    if (last) store_one(last, load_one<double>(last, out.dtype) == 0 ? 1.0 : 0.0, out.dtype);
  });
}

cw_status channels_last_copy(const Planted& p) { return with_channels_last(p, 4); }
cw_status channels_last_cat(const Planted& p) { return with_channels_last(p, 4); }
cw_status channels_last_3d(const Planted& p) { return with_channels_last(p, 5); }

cw_status crashes(const Planted&) { std::abort(); }

struct Bug {
  const char* name;
  const char* op;
  cw_status (*run)(const Planted& planted);
};
const Bug bugs[] = {
    {"unstable_sort", "aten::sort.values_stable", unstable_sort},
    {"one_in_10000", "aten::mul.out", one_in_10000},
    {"ignores_strides", "aten::exp.out", ignores_strides},
    {"out_of_bounds", "aten::neg.out", out_of_bounds},
    {"ignores_alpha", "aten::add.out", ignores_alpha},
    {"narrow_sum", "aten::sum.IntList_out", narrow_sum},
    {"missing_wait", "aten::tanh.out", missing_wait},
    {"half_accumulation", "aten::mm.out", half_accumulation},
    {"loses_nan", "aten::relu.out", loses_nan},
    {"aliasing", "aten::addcmul.out", aliasing},
    {"mutates_input", "aten::sigmoid.out", mutates_input},
    {"stale_workspace", "aten::bmm.out", stale_workspace},
    {"same_numbers", "aten::uniform_", same_numbers},
    {"flushes_subnormals", "aten::abs.out", flushes_subnormals},
    {"wrong_backward", "aten::gelu_backward.grad_input", wrong_backward},
    {"wrong_step", "aten::addcdiv.out", wrong_step},
    {"late_error", "aten::mse_loss.out", late_error},
    {"channels_last_copy", "aten::copy_", channels_last_copy},
    {"channels_last_cat", "aten::cat.out", channels_last_cat},
    {"channels_last_3d", "aten::sub.out", channels_last_3d},
    {"crashes", "aten::erf.out", crashes},
};

const Bug* bug_in(const char* op) {
  for (const Bug& bug : bugs) {
    if (settings().bugs.count(bug.name) && strcmp(bug.op, op) == 0) return &bug;
  }
  return nullptr;
}

cw_status run_planted(const OpDef& op, const cw_arg* args, int32_t n, Device& device, cw_stream stream) {
  return bug_in(op.name)->run(Planted{op, args, n, device, stream});
}

}  // namespace

std::string bug_names() {
  std::string names;
  for (const Bug& bug : bugs) names += (names.empty() ? "" : ", ") + std::string(bug.name);
  return names;
}

bool is_bug(const std::string& name) {
  for (const Bug& bug : bugs) {
    if (name == bug.name) return true;
  }
  return false;
}

bool plants_bug(const char* name, const char* op) {
  const Bug* bug = bug_in(op);
  return bug && strcmp(bug->name, name) == 0;
}

FaultyKernel planted_bug(const OpDef& op) { return bug_in(op.name) ? run_planted : nullptr; }

}  // namespace sim
