// The table of operators. A new fact is a value in a row, with its reason; a new kind of fact is a field of `Facts`.
#include "ladder/facts.h"

#include <algorithm>
#include <string>

namespace causeway {

namespace {

using T = c10::ScalarType;

// ---- reasons that several rows share ------------------------------------------------------------------------------

constexpr const char* kIndicesOfCpu = "torch.cuda takes indices and masks of the CPU.";
constexpr const char* kSparse = "Of sparse and nested tensors, whose shapes are of the CPU.";
constexpr const char* kByDevice = "A composite that looks at the device's type, or asks for a kernel by it.";
constexpr const char* kOwn = "A kernel of csrc/aten, which asks for the vendor's.";
constexpr const char* kStatistics = "torch's schema does not say that the running statistics are updated in place.";
constexpr const char* kPicks = "Of no elements any index is out of range: the host rung has torch's error.";
constexpr const char* kNoBool = "torch's CPU kernel refuses bool: the host rung has its error.";
constexpr const char* kNoOverlap = "torch's kernel refuses an output that is an input: the host rung has its error.";
constexpr const char* kFound = "Its shape depends on the data.";
constexpr const char* kNoMeta = "torch has no meta kernel for it.";
// By calling every operator with many layouts of its tensors on the CPU and on a device (torch 2.13).
constexpr const char* kMeasured = "Strides were found by calling it on the CPU; torch's meta kernel says others.";
constexpr const char* kOverwrites = "What was in the tensor does not matter.";
constexpr const char* kNorm = "torch's CPU kernel wants statistics in the dtype of the input or the parameters.";
// tests/torch/test_cuda_only.py asks all of them.
constexpr const char* kCudaOnly = "By torch's operator database CUDA takes these dtypes and the CPU does not.";
constexpr const char* kCopies = "It is copy_ below, or nothing.";
constexpr const char* kPlumbing = "The core does it by itself: no number is computed.";
constexpr const char* kBelow = "torch computes it by another operator, below the point where a trace sees it.";

// ---- sets of dtypes -----------------------------------------------------------------------------------------------

constexpr DtypeSet kHalves = bit_of(T::Half) | bit_of(T::BFloat16);
constexpr DtypeSet kComplexHalf = bit_of(T::ComplexHalf);
constexpr DtypeSet kComplex = bit_of(T::ComplexFloat) | bit_of(T::ComplexDouble);
constexpr DtypeSet kIntegers = bit_of(T::Byte) | bit_of(T::Char) | bit_of(T::Short) | bit_of(T::Int) | bit_of(T::Long);

// ---- the table ----------------------------------------------------------------------------------------------------

// clang-format off
constexpr FactsRow kRows[] = {
    {"_amp_update_scale_", {kNoMeta}, {.like = 0}},
    {"_batch_norm_impl_index", {kStatistics}, {.writes = {"running_mean", "running_var"}}},
    {"_ctc_loss.Tensor", {"Its lengths are of the CPU."}, {.mixed_devices = true}},
    {"_ctc_loss_backward", {kNoMeta}, {.like = 1}},
    {"_ctc_loss_backward.Tensor", {"Its lengths are of the CPU."}, {.mixed_devices = true}},
    {"_cudnn_ctc_loss.Tensor", {"Its lengths are of the CPU."}, {.mixed_devices = true}},
    {"_fft_c2c", {kCudaOnly}, {.wide = kComplexHalf}},
    {"_fft_c2r", {kCudaOnly}, {.wide = kComplexHalf}},
    {"_foreach_copy.default", {"It copies between devices."}, {.mixed_devices = true}},
    {"_foreach_copy_", {"It copies between devices."}, {.mixed_devices = true}},
    {"_foreach_neg", {kNoBool}, {.refuses_bool = true}},
    {"_foreach_sub", {kNoBool}, {.refuses_bool = true}},
    {"_fused_rms_norm.default", {kByDevice}, {.reach = Reach::Whole}},
    {"_fused_rms_norm_backward.default", {kOwn}, {.reach = Reach::Own}},
    {"_grouped_mm.default", {"torch's composite does what no kernel takes."}, {.reach = Reach::Offered}},
    {"_index_put_impl", {kIndicesOfCpu, kPicks}, {.mixed_devices = true, .picks = true}},
    {"_log_softmax", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"_log_softmax_backward_data", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"_logcumsumexp", {kNoMeta}, {.like = 0}},
    {"_native_batch_norm_legit", {kMeasured}, {.layout = ResultLayout::Format}},
    {"_nested_from_padded.default", {kSparse}, {.mixed_devices = true}},
    {"_nested_view_from_buffer.default", {kSparse}, {.mixed_devices = true}},
    {"_nested_view_from_buffer_copy.default", {kSparse}, {.mixed_devices = true}},
    {"_pack_padded_sequence.default", {"Its lengths are of the CPU."}, {.mixed_devices = true}},
    {"_reshape_alias.default", {kPlumbing}, {.plumbing = true}},
    {"_safe_softmax", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"_softmax", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"_to_copy.default", {kCopies}, {.copies = true}},
    {"_unique2.default", {kFound}, {.begins = Begins::Unique}},
    {"_unsafe_index", {kIndicesOfCpu, kMeasured}, {.mixed_devices = true, .layout = ResultLayout::Index}},
    {"_unsafe_index_put", {kIndicesOfCpu}, {.mixed_devices = true}},
    {"_unsafe_view.default", {kPlumbing}, {.plumbing = true}},
    {"_upsample_bicubic2d_aa", {kCudaOnly}, {.wide = kHalves}},
    {"_upsample_bicubic2d_aa_backward", {kCudaOnly}, {.wide = kHalves}},
    {"_upsample_bilinear2d_aa", {kCudaOnly}, {.wide = kHalves}},
    {"_upsample_bilinear2d_aa_backward", {kCudaOnly}, {.wide = kHalves}},
    {"abs", {kCudaOnly}, {.wide = bit_of(T::Bool)}},
    {"acos", {kCudaOnly}, {.wide = kComplexHalf}},
    {"acosh", {kCudaOnly}, {.wide = kComplexHalf}},
    {"addr_.default", {kByDevice}, {.reach = Reach::Whole}},
    {"angle", {kCudaOnly}, {.wide = kComplexHalf}},
    {"arange.default", {kBelow}, {.computed_by = "aten::arange.start_out"}},
    {"arange.start", {kBelow}, {.computed_by = "aten::arange.start_out"}},
    {"arange.start_step", {kBelow}, {.computed_by = "aten::arange.start_out"}},
    {"asin", {kCudaOnly}, {.wide = kComplexHalf}},
    {"asinh", {kCudaOnly}, {.wide = kComplexHalf}},
    {"atan", {kCudaOnly}, {.wide = kComplexHalf}},
    {"atanh", {kCudaOnly}, {.wide = kComplexHalf}},
    {"avg_pool3d", {kCudaOnly}, {.wide = kHalves}},
    {"avg_pool3d_backward", {kCudaOnly}, {.wide = kHalves}},
    {"batch_norm_gather_stats", {kStatistics}, {.writes = {"running_mean", "running_var"}}},
    {"batch_norm_gather_stats_with_counts", {kStatistics}, {.writes = {"running_mean", "running_var"}}},
    {"batch_norm_update_stats", {kStatistics}, {.writes = {"running_mean", "running_var"}}},
    {"bernoulli_", {kOverwrites}, {.only_writes = true}},
    {"binary_cross_entropy", {kMeasured}, {.layout = ResultLayout::Like}},
    {"binary_cross_entropy_backward", {kMeasured}, {.layout = ResultLayout::Like, .layout_of = 1}},
    {"bincount.default", {kFound}, {.begins = Begins::Bincount}},
    {"cat", {kNoOverlap}, {.refuses_overlap = true}},
    {"cauchy_", {kOverwrites}, {.only_writes = true}},
    {"clone.default",
     {"Pointwise by its tag; its meta kernel knows the memory_format.",
      kCopies},
     {.layout = ResultLayout::Meta, .copies = true}},
    {"conj_physical_.default", {kByDevice}, {.reach = Reach::Whole}},
    {"contiguous.default", {kCopies}, {.copies = true}},
    {"convolution", {kMeasured}, {.layout = ResultLayout::Convolution}},
    {"convolution.default",
     {kByDevice,
      "torch asks foreign devices by the other name.",
      "torch.jit.trace must see _convolution in its place."},
     {.reach = Reach::Whole, .other_name = "aten::convolution_overrideable", .unrecorded = true}},
    {"convolution_backward", {kMeasured}, {.layout = ResultLayout::Convolution, .layout_of = 1}},
    {"convolution_backward.default",
     {kByDevice,
      "The other name leaves out the bias's shape."},
     {.reach = Reach::Whole, .other_name = "aten::convolution_backward_overrideable", .left_out = 3}},
    {"copy_", {kSparse, kOverwrites, kCopies}, {.mixed_devices = true, .only_writes = true, .copies = true}},
    {"copy_.default", {kOwn}, {.reach = Reach::Own}},
    {"copy_sparse_to_sparse_", {kSparse}, {.mixed_devices = true}},
    {"cos", {kCudaOnly}, {.wide = kComplexHalf}},
    {"cosh", {kCudaOnly}, {.wide = kComplexHalf}},
    {"cudnn_batch_norm", {kStatistics}, {.writes = {"running_mean", "running_var"}}},
    {"cumprod", {"Its decomposition makes a mask of the square of the size."}, {.costly = true}},
    {"cumsum", {"Its decomposition makes a mask of the square of the size."}, {.costly = true}},
    {"detach.default", {kPlumbing}, {.plumbing = true}},
    {"div", {kCudaOnly}, {.wide = kComplexHalf}},
    {"elu_backward", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"embedding", {kPicks}, {.picks = true}},
    {"empty.memory_format", {kPlumbing}, {.plumbing = true}},
    {"empty_like.default", {kPlumbing}, {.plumbing = true}},
    {"empty_strided.default", {kPlumbing}, {.plumbing = true}},
    {"exp", {kCudaOnly}, {.wide = kComplexHalf}},
    {"exponential_", {kOverwrites}, {.only_writes = true}},
    {"fill.Scalar", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"fill_", {kOverwrites}, {.only_writes = true}},
    {"flip", {kMeasured}, {.layout = ResultLayout::Like}},
    {"floor_divide", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"full.default", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"full_like.default", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"gather", {kPicks, kNoOverlap}, {.picks = true, .refuses_overlap = true}},
    {"geometric_", {kOverwrites}, {.only_writes = true}},
    {"glu_backward", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"hardsigmoid_backward", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"hardswish_backward", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"hardtanh", {kMeasured}, {.layout = ResultLayout::Like}},
    {"hardtanh_backward", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"histc", {kCudaOnly}, {.wide = kIntegers}},
    {"huber_loss_backward", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"index",
     {kIndicesOfCpu,
      kPicks,
      kMeasured},
     {.mixed_devices = true, .picks = true, .layout = ResultLayout::Index}},
    {"index.Tensor", {"With a mask, its shape depends on the data."}, {.begins = Begins::Index}},
    {"index_add", {kNoOverlap}, {.refuses_overlap = true}},
    {"index_copy", {kNoOverlap}, {.refuses_overlap = true}},
    {"index_fill_.int_Scalar", {kIndicesOfCpu}, {.mixed_devices = true}},
    {"index_fill_.int_Tensor", {kIndicesOfCpu}, {.mixed_devices = true}},
    {"index_put", {kIndicesOfCpu, kPicks}, {.mixed_devices = true, .picks = true}},
    {"index_select", {kPicks, kNoOverlap}, {.picks = true, .refuses_overlap = true}},
    {"kaiser_window.beta", {kByDevice}, {.reach = Reach::Whole}},
    {"kaiser_window.default", {kByDevice}, {.reach = Reach::Whole}},
    {"kaiser_window.periodic", {kByDevice}, {.reach = Reach::Whole}},
    {"leaky_relu_backward", {kMeasured}, {.layout = ResultLayout::Elementwise, .layout_of = 1}},
    {"lerp", {kCudaOnly}, {.wide = kComplexHalf}},
    {"lerp.Scalar", {"The CPU's kernel takes the number as a number."}, {.numbers_expand = false}},
    {"lift_fresh.default", {kPlumbing}, {.plumbing = true}},
    {"linalg_cross", {kNoOverlap}, {.refuses_overlap = true}},
    {"log", {kCudaOnly}, {.wide = kComplexHalf}},
    {"log_normal_", {kOverwrites}, {.only_writes = true}},
    {"log_sigmoid_backward", {kMeasured}, {.layout = ResultLayout::Like}},
    {"log_sigmoid_forward", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"logaddexp", {kCudaOnly}, {.wide = kComplexHalf}},
    {"logit_backward", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"masked_select.default", {kFound}, {.begins = Begins::AsFirst}},
    {"masked_select.out", {kFound}, {.begins = Begins::Given}},
    {"miopen_batch_norm", {kStatistics}, {.writes = {"running_mean", "running_var"}}},
    {"mode.values", {kByDevice}, {.reach = Reach::Whole}},
    {"mse_loss_backward", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"multi_margin_loss", {kCudaOnly}, {.wide = kHalves}},
    {"multi_margin_loss_backward", {kCudaOnly}, {.wide = kHalves}},
    {"multilabel_margin_loss_backward", {kCudaOnly}, {.wide = kHalves}},
    {"multilabel_margin_loss_forward", {kCudaOnly}, {.wide = kHalves}},
    {"nansum",
     {kCudaOnly,
      "The CPU's kernel knows real numbers only."},
     {.wide = kComplexHalf | kComplex, .real_only = true}},
    {"native_batch_norm",
     {kStatistics,
      kMeasured},
     {.writes = {"running_mean", "running_var"}, .layout = ResultLayout::Format}},
    {"native_batch_norm_backward",
     {kMeasured,
      kNorm},
     {.statistics = {5, 6, -1}, .parameters = {2, 3, 4}, .layout = ResultLayout::Format, .layout_of = 1}},
    {"native_dropout_backward", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"native_group_norm_backward",
     {kMeasured,
      kNorm},
     {.statistics = {2, 3, -1}, .parameters = {4, -1, -1}, .layout = ResultLayout::Format, .layout_of = 1}},
    {"native_layer_norm", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"native_layer_norm_backward",
     {kMeasured,
      kNorm},
     {.statistics = {3, 4, -1}, .parameters = {5, 6, -1}, .layout = ResultLayout::Dense}},
    {"neg", {kNoBool}, {.refuses_bool = true}},
    {"new_empty.default", {kPlumbing}, {.plumbing = true}},
    {"new_empty_strided.default", {kPlumbing}, {.plumbing = true}},
    {"new_full.default", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"new_ones.default", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"new_zeros.default", {kBelow}, {.computed_by = "aten::zero_"}},
    {"nll_loss2d_forward", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"nonzero.default",
     {"Its shape depends on the data. Into a given tensor torch writes by its strides, if the size fits."},
     {.begins = Begins::Nonzero}},
    {"normal_", {kOverwrites}, {.only_writes = true}},
    {"ones.default", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"ones_like.default", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"pixel_shuffle", {kMeasured}, {.layout = ResultLayout::Format}},
    {"pixel_unshuffle", {kMeasured}, {.layout = ResultLayout::Format}},
    {"pow", {kCudaOnly}, {.wide = kComplexHalf}},
    {"pow.Scalar", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"pow.Tensor_Scalar", {"The CPU's kernel takes the number as a number."}, {.numbers_expand = false}},
    {"prod", {kCudaOnly}, {.wide = kComplexHalf}},
    {"random_", {kOverwrites}, {.only_writes = true}},
    {"reflection_pad2d", {kMeasured}, {.layout = ResultLayout::Format}},
    {"reflection_pad2d_backward", {kMeasured}, {.layout = ResultLayout::Format, .layout_of = 1}},
    {"reflection_pad3d", {kMeasured}, {.layout = ResultLayout::Format}},
    {"reflection_pad3d_backward", {kMeasured}, {.layout = ResultLayout::Format, .layout_of = 1}},
    {"relu", {kNoBool}, {.refuses_bool = true}},
    {"repeat_interleave.Tensor", {kFound}, {.begins = Begins::AsFirst}},
    {"repeat_interleave.self_Tensor", {kIndicesOfCpu}, {.mixed_devices = true}},
    {"replication_pad2d", {kMeasured}, {.layout = ResultLayout::Format}},
    {"replication_pad2d_backward", {kMeasured}, {.layout = ResultLayout::Format, .layout_of = 1}},
    {"replication_pad3d", {kMeasured}, {.layout = ResultLayout::Format}},
    {"replication_pad3d_backward", {kMeasured}, {.layout = ResultLayout::Format, .layout_of = 1}},
    {"resize_.default", {kPlumbing}, {.plumbing = true}},
    {"rrelu_with_noise", {kCudaOnly}, {.wide = bit_of(T::Half)}},
    {"rrelu_with_noise_backward", {kCudaOnly}, {.wide = bit_of(T::Half)}},
    {"rsqrt", {kCudaOnly}, {.wide = kComplexHalf}},
    {"rsub", {kNoBool}, {.refuses_bool = true}},
    {"scalar_tensor.default", {kBelow}, {.computed_by = "aten::fill_.Scalar"}},
    {"sigmoid", {kCudaOnly}, {.wide = kComplexHalf}},
    {"sigmoid_backward", {kCudaOnly}, {.wide = kComplexHalf}},
    {"sin", {kCudaOnly}, {.wide = kComplexHalf}},
    {"sinh", {kCudaOnly}, {.wide = kComplexHalf}},
    {"smooth_l1_loss_backward", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"softplus_backward", {kMeasured}, {.layout = ResultLayout::Elementwise}},
    {"sort", {kMeasured}, {.layout = ResultLayout::Like}},
    {"sqrt", {kCudaOnly}, {.wide = kComplexHalf}},
    {"sub", {kNoBool}, {.refuses_bool = true}},
    {"sum", {kCudaOnly}, {.wide = kComplexHalf}},
    {"take", {kPicks, kNoOverlap}, {.picks = true, .refuses_overlap = true}},
    {"tan", {kCudaOnly}, {.wide = kComplexHalf}},
    {"tanh", {kCudaOnly}, {.wide = kComplexHalf}},
    {"tanh_backward", {kCudaOnly}, {.wide = kComplexHalf}},
    {"tensor_split.tensor_indices_or_sections", {kIndicesOfCpu}, {.mixed_devices = true}},
    {"threshold_backward", {kMeasured}, {.layout = ResultLayout::Elementwise, .layout_of = 1}},
    {"trace", {kCudaOnly}, {.wide = kComplexHalf | bit_of(T::Bool)}},
    {"tril", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"triu", {kMeasured}, {.layout = ResultLayout::Dense}},
    {"uniform_", {kOverwrites}, {.only_writes = true}},
    {"unique_consecutive.default", {kFound}, {.begins = Begins::Unique}},
    {"where", {"The CPU's kernel reads each tensor in its own dtype."}, {.casts = false}},
    {"zero_", {kOverwrites}, {.only_writes = true}},
    {"zeros.default", {kBelow}, {.computed_by = "aten::zero_"}},
    {"zeros_like.default", {kBelow}, {.computed_by = "aten::zero_"}},
};
// clang-format on

constexpr bool before(const FactsRow& a, const FactsRow& b) { return std::string_view(a.name) < b.name; }

constexpr bool is_sorted() {
  for (size_t i = 1; i < std::size(kRows); ++i)
    if (!before(kRows[i - 1], kRows[i])) return false;
  return true;
}
static_assert(is_sorted(), "rows of facts.cpp are sorted by name, each name once");

constexpr std::string_view kAten = "aten::";

const Facts* row_of(std::string_view name) {
  const auto* it = std::lower_bound(std::begin(kRows), std::end(kRows), name,
                                    [](const FactsRow& row, std::string_view wanted) { return row.name < wanted; });
  return it != std::end(kRows) && it->name == name ? &it->facts : nullptr;
}

// Each field that `from` says and `to` does not.
void complete(Facts& to, const Facts& from) {
  static const Facts none;
  const auto take = [&](auto field) {
    if (to.*field == none.*field) to.*field = from.*field;
  };
  take(&Facts::reach), take(&Facts::other_name), take(&Facts::left_out), take(&Facts::unrecorded);
  take(&Facts::mixed_devices), take(&Facts::picks), take(&Facts::refuses_bool), take(&Facts::refuses_overlap);
  take(&Facts::wide), take(&Facts::real_only), take(&Facts::statistics), take(&Facts::parameters);
  take(&Facts::writes), take(&Facts::only_writes), take(&Facts::begins), take(&Facts::like);
  if (to.layout == none.layout) to.layout = from.layout, to.layout_of = from.layout_of;
  take(&Facts::casts), take(&Facts::numbers_expand);
  take(&Facts::copies), take(&Facts::plumbing), take(&Facts::costly), take(&Facts::computed_by);
}

}  // namespace

Facts facts_of(std::string_view name) {
  Facts facts;
  if (name.substr(0, kAten.size()) != kAten) return facts;
  name.remove_prefix(kAten.size());
  const auto look = [&](std::string_view row) {
    if (const Facts* known = row_of(row)) complete(facts, *known);
  };
  const auto dot = name.find('.');
  const std::string_view base = name.substr(0, dot);
  look(dot == std::string_view::npos ? std::string(base) + ".default" : std::string(name));
  look(base);
  const bool in_place = base.size() > 1 && base.back() == '_' && base[base.size() - 2] != '_';
  if (in_place) look(base.substr(0, base.size() - 1));
  return facts;
}

const FactsRow* named_otherwise(std::string_view other_name) {
  for (const FactsRow& row : kRows)
    if (row.facts.other_name && row.facts.other_name == other_name) return &row;
  return nullptr;
}

std::string full_name(const FactsRow& row) {
  std::string_view name = row.name;
  constexpr std::string_view unnamed = ".default";
  if (name.size() > unnamed.size() && name.substr(name.size() - unnamed.size()) == unnamed)
    name.remove_suffix(unnamed.size());
  return std::string(kAten) + std::string(name);
}

const std::vector<FactsRow>& facts_table() {
  static const auto& rows = *new std::vector<FactsRow>(std::begin(kRows), std::end(kRows));
  return rows;
}

}  // namespace causeway
