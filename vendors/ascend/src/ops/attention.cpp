// Attention and its gradient, by aclnnFlashAttentionScore. It keeps the maximum and the sum of each row, eight times each,
// where torch keeps the logarithm of the sum of exponentials: the one is made from the other by a logarithm and a sum. The
// gradient takes exp(score - maximum) / sum, so the logarithm as the maximum and 1 as the sum are as good.
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "../call.hpp"
#include "../device.hpp"
#include "../memory.hpp"

namespace ascend {

namespace {

// What is left out in causal attention: all above the diagonal of a square of this size, whatever the sizes of the call.
constexpr int64_t kSquare = 2048;
constexpr int64_t kRepeated = 8;  // how often a row's maximum and sum are written
constexpr int64_t kNoMask = 0, kCausal = 2;  // sparse modes
constexpr int64_t kFarthest = INT32_MAX;  // of the keys before and after that are seen

// Places of the arguments in torch's operators.
struct Forward {
  static constexpr int query = 2, key = 3, value = 4, dropout = 5, causal = 6, mask = 7, scale = 8, logarithm = 1;
};
struct Backward {
  static constexpr int query = 4, key = 5, value = 6, dropout = 9, causal = 10, mask = 11, scale = 12, logarithm = 8;
};

struct Beside {  // of the chip's, what this needs beside
  Operation log{"Log"}, add{"Add"}, copy{"InplaceCopy"}, fill{"InplaceFillScalar"};
  bool there() const { return log.run && add.run && copy.run && fill.run; }
};
Beside& beside() {
  static auto& made = *new Beside;
  return made;
}

// The mask of causal attention, on the device of this call. It is made once, and never freed.
void* causal_square(Frame& f) {
  static std::mutex mutex;
  static auto& made = *new std::unordered_map<int32_t, void*>;
  const std::lock_guard<std::mutex> lock(mutex);
  void*& square = made[f.index()];
  if (square) return square;
  constexpr auto bytes = static_cast<uint64_t>(kSquare * kSquare);
  std::vector<uint8_t> values(bytes);
  for (int64_t row = 0; row < kSquare; ++row)
    std::fill(values.begin() + row * kSquare + row + 1, values.begin() + (row + 1) * kSquare, uint8_t{1});
  void* memory = nullptr;
  if (mem_alloc(f.index(), bytes, &memory)) return f.decline(), nullptr;
  if (acl.copy(memory, bytes, values.data(), bytes, kHostToDevice) != kSuccess) {
    mem_free(f.index(), memory);
    return f.decline(), nullptr;
  }
  return square = memory;
}

template <class At>
AclTensor* mask(Frame& f) {
  if (!f[At::causal].v.i) return nullptr;
  const int64_t shape[] = {kSquare, kSquare}, strides[] = {kSquare, 1};
  Memory square;
  square.from = Memory::From::stays, square.address = causal_square(f);
  return square.address ? f.view(square, {kDLBool, 8, 1}, shape, strides, 2, false) : nullptr;
}

template <class At>
int64_t sparse_mode(Frame& f) {
  return f[At::causal].v.i ? kCausal : kNoMask;
}

// What it does not take. torch makes every mask one of numbers that are added, which aclnn adds before it scales.
template <class At>
AclTensor* query(Frame& f) {
  for (const int at : {At::query, At::key, At::value})
    if (f[at].v.tensor->ndim != 4 || !f[at].v.tensor->shape[1]) f.decline();
  if (f[At::mask].tag != CW_NONE || f[At::dropout].v.d != 0 || !beside().there()) f.decline();
  return f.status() ? nullptr : f.tensor(f[At::query]);
}

template <class At>
double scale(Frame& f) {
  if (f[At::scale].tag != CW_NONE) return f[At::scale].v.d;
  const DLTensor* q = f[At::query].v.tensor;
  return 1 / std::sqrt(static_cast<double>(q->shape[q->ndim - 1]));
}

template <class At>
int64_t heads(Frame& f) {
  const DLTensor* q = f[At::query].v.tensor;
  return q->ndim == 4 ? q->shape[1] : 1;
}

constexpr DLDataType kSingle = {kDLFloat, 32, 1};

template <class At>
struct Rows {  // of the queries, float32: [batch, heads, rows, 8]
  int64_t shape[4] = {0, 0, 0, kRepeated};
  explicit Rows(Frame& f) {
    const DLTensor* q = f[At::query].v.tensor;
    if (q->ndim == 4 && beside().there())
      std::copy(q->shape, q->shape + 3, shape);
    else
      f.decline();
  }
  AclTensor* scratch(Frame& f, Memory* where = nullptr) const {
    return f.status() ? nullptr : f.scratch(kFloat, sizeof(float), shape, 4, where);
  }
  // The first of each eight.
  AclTensor* first(Frame& f, const Memory& memory) const {
    const int64_t strides[] = {shape[1] * shape[2] * kRepeated, shape[2] * kRepeated, kRepeated};
    return f.view(memory, kSingle, shape, strides, 3, false);
  }
};

// Frame::left: where the maxima and the sums lie.
AclTensor* maximum(Frame& f) { return Rows<Forward>(f).scratch(f, &f.left[0]); }
AclTensor* sum(Frame& f) { return Rows<Forward>(f).scratch(f, &f.left[1]); }

cw_status make_logarithm(Frame& f) {
  const Rows<Forward> rows(f);
  AclTensor* logarithm = f.scratch(kFloat, sizeof(float), rows.shape, 3);
  AclTensor *maxima = rows.first(f, f.left[0]), *sums = rows.first(f, f.left[1]);
  TRY(f.status());
  TRY(f.call(beside().log, sums, logarithm));
  return f.call(beside().add, logarithm, maxima, f.scalar(int64_t{1}), f.tensor(f[Forward::logarithm]));
}

AclTensor* logarithm_as_maximum(Frame& f) {
  const Rows<Backward> rows(f);
  const DLTensor* given = f[Backward::logarithm].v.tensor;
  if (given->ndim != 3 || type_of(given->dtype) != kFloat) f.decline();
  AclTensor* made = rows.scratch(f);
  if (f.status()) return nullptr;
  const int64_t strides[] = {given->strides[0], given->strides[1], given->strides[2], 0};
  AclTensor* wide = f.view(f.of(given), kSingle, rows.shape, strides, 4, false);
  return f.status() || f.call(beside().copy, made, wide) ? nullptr : made;
}

AclTensor* sum_of_one(Frame& f) {
  AclTensor* made = Rows<Backward>(f).scratch(f);
  return f.status() || f.call(beside().fill, made, f.scalar(1.0)) ? nullptr : made;
}

AclTensor* no_softmax(Frame& f) { return f.nothing(kFloat); }
const char* layout(Frame&) { return "BNSD"; }
AclIntArray* no_prefix(Frame&) { return nullptr; }

}  // namespace

void add_attention(Lines& lines) {
  constexpr auto none = None::tensor;
  constexpr auto all = Integer{kFarthest};
  // query, key, value; shift, dropout, padding; mask, prefix; scale, probability to keep; before, after, heads, layout,
  // precision, mode; maximum, sum, softmax, result
  using Score = With<&query<Forward>, 3, 4, none, none, none, &mask<Forward>, &no_prefix, &scale<Forward>, Real{1}, all,
                     all, &heads<Forward>, &layout, Integer{0}, &sparse_mode<Forward>, &maximum, &sum, &no_softmax, 0>;
  using Gradient = With<&query<Backward>, 5, 6, 3, none, none, none, &mask<Backward>, &logarithm_as_maximum,
                        &sum_of_one, none, 7, &no_prefix, &scale<Backward>, Real{1}, all, all, &heads<Backward>,
                        &layout, Integer{0}, &sparse_mode<Backward>, 0, 1, 2, &no_softmax>;
  lines.push_back(row<aten::_scaled_dot_product_flash_attention_for_cpu, Then<Score, &make_logarithm>>(
      whole(kFloats), "FlashAttentionScore"));
  lines.push_back(row<aten::_scaled_dot_product_flash_attention_for_cpu_backward, Gradient>(whole(kFloats),
                                                                                            "FlashAttentionScoreGrad"));
}

}  // namespace ascend
