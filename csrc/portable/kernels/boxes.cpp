// torchvision's operators of detectors: the choice among boxes that overlap, and features of regions with their gradient
// (He et al. 2017, https://arxiv.org/abs/1703.06870). Numbers and their order are those of torchvision's CPU kernels.
#include <cmath>

#include "portable/order.h"
#include "portable/kernels/boxes.cl.h"

namespace causeway::portable {

namespace {

bool takes(const KernelCall& call, const Tensor& t) { return is_float(t.dtype) && (t.dtype != kF64 || has_f64(call)); }

// The largest float that is not above: a float is above `v` where it is above that.
double floor_to_float(double v) {
  const auto near = static_cast<float>(v);
  return near > v ? std::nextafterf(near, -INFINITY) : near;
}

// result, dets, scores, iou_threshold
cw_status nms(KernelCall& call, const void*) {
  Tensor out, boxes, scores;
  if (!call.tensor(0, &out) || !call.tensor(1, &boxes) || !call.tensor(2, &scores)) return CW_UNSUPPORTED;
  if (boxes.ndim != 2 || boxes.shape[1] != 4 || scores.ndim != 1 || scores.shape[0] != boxes.shape[0] ||
      scores.dtype != boxes.dtype || !takes(call, boxes) || out.dtype != kI64)
    return CW_UNSUPPORTED;  // the host raises the error
  const int64_t n = boxes.shape[0], blocks = (n + 63) / 64;
  if (n == 0) return resized(call, 0, {0}, &out);
  const Device& device = *call.device;
  const Dtype type = compute_of(boxes.dtype);
  const double threshold = type == kF32 ? floor_to_float(call.real(3)) : call.real(3);
  Sorted sorted;
  TRY(sort_rows(call, scores, 0, true, &sorted));
  void *sides = nullptr, *kept = nullptr, *gone = nullptr;
  TRY(scratch(device, call.stream, static_cast<uint64_t>(5 * n * size_of(type)), &sides));
  TRY(scratch(device, call.stream, static_cast<uint64_t>((n + 1) * 8), &kept));  // their number is behind them
  TRY(scratch(device, call.stream, static_cast<uint64_t>((device.in_turn() ? n * 4 : blocks * 8)), &gone));
  {
    Program p(call, "boxes_lay");
    p.define("T", name_of(type)).in("box", boxes).in("place", sorted.places.data, kI64).out("side", sides, type);
    TRY(p.value("n", n).run(n, texts::boxes::lay, 20));
  }
  const auto begin = [&](Program& p) {
    p.define("T", name_of(type)).before(texts::boxes::overlap).in("side", sides, type).value("n", n);
  };
  if (device.in_turn()) {
    Program p(call, "boxes_choose");
    begin(p);
    p.in("place", sorted.places.data, kI64).out("kept", kept, kI64).out("gone", gone, kI32);
    TRY(p.real("threshold", threshold, type).run(1, texts::boxes::choose, static_cast<double>(n) * 100));
  } else {
    void* masks = nullptr;
    TRY(scratch(device, call.stream, static_cast<uint64_t>(n * blocks * 8), &masks));
    {
      Program p(call, "boxes_masks");
      begin(p);
      const int64_t shape[] = {n, blocks};
      TRY(p.out("mask", masks, kU64).real("threshold", threshold, type).each(shape, 2, texts::boxes::masks, 1000));
    }
    const Teams teams = teams_of(device, 1, blocks);
    Program p(call, "boxes_choose_teams");
    p.in("place", sorted.places.data, kI64).out("kept", kept, kI64).out("gone", gone, kU64).in("mask", masks, kU64);
    p.value("n", n).value("blocks", blocks);
    TRY(p.as_is(texts::boxes::choose_teams, [&](Launch& launch, cw_function function) {
      return launch.run_groups(device, function, 1, teams.items, call.stream);
    }));
  }
  int64_t count = 0;
  TRY(fetch(device, call.stream, static_cast<const char*>(kept) + n * 8, 8, &count));
  TRY(resized(call, 0, {count}, &out));
  return copy_into(call, out, dense(kept, kI64, {count}));
}

// What both directions say of regions: image number and corners, [regions, 5], in an image of `rows` x `columns`.
struct Regions {
  Tensor roi;
  int64_t images, rows, columns, bins_y, bins_x, ratio;
  double scale;
  bool aligned;

  void add_to(Program& p, Dtype type) const {
    p.define("T", name_of(type)).define("ALIGNED_ROI", aligned).before(texts::boxes::roi);
    p.in("roi", roi).real("scale", scale, type).real("offset", aligned ? 0.5 : 0, type);
    p.value("images", images).value("rows", rows).value("columns", columns);
    p.value("bins_y", bins_y).value("bins_x", bins_x).value("ratio", ratio).tells();
  }
  bool fit(const Tensor& values) const {
    return roi.ndim == 2 && roi.shape[1] == 5 && roi.dtype == values.dtype && rows > 0 && columns > 0;
  }
};

// result, input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
cw_status roi_align(KernelCall& call, const void*) {
  Tensor out, in;
  Regions r{};
  if (!call.tensor(0, &out) || !call.tensor(1, &in) || !call.tensor(2, &r.roi) || in.ndim != 4 || out.ndim != 4 ||
      out.dtype != in.dtype || !takes(call, in))
    return CW_UNSUPPORTED;
  r.images = in.shape[0], r.rows = in.shape[2], r.columns = in.shape[3];
  r.scale = call.real(3), r.bins_y = call.integer(4), r.bins_x = call.integer(5);
  r.ratio = call.integer(6), r.aligned = call.integer(7) != 0;
  if (!r.fit(in)) return CW_UNSUPPORTED;
  Program p(call, "roi_align");
  r.add_to(p, compute_of(in.dtype));
  return p.in("x", in).out("out", out).each(out, texts::boxes::roi_align, 200);
}

// grad_input, grad, rois, spatial_scale, pooled_height, pooled_width, batch_size, channels, height, width, sampling_ratio,
// aligned
cw_status roi_align_backward(KernelCall& call, const void*) {
  Tensor out, grad;
  Regions r{};
  if (!call.tensor(0, &out) || !call.tensor(1, &grad) || !call.tensor(2, &r.roi) || grad.ndim != 4 || out.ndim != 4 ||
      out.dtype != grad.dtype || !out.contiguous() || !takes(call, grad))
    return CW_UNSUPPORTED;
  r.images = out.shape[0], r.rows = out.shape[2], r.columns = out.shape[3];
  r.scale = call.real(3), r.bins_y = call.integer(4), r.bins_x = call.integer(5);
  r.ratio = call.integer(10), r.aligned = call.integer(11) != 0;
  if (!r.fit(grad) || grad.shape[0] != r.roi.shape[0] || grad.shape[1] != out.shape[1] || grad.shape[2] != r.bins_y ||
      grad.shape[3] != r.bins_x)
    return CW_UNSUPPORTED;
  const Dtype type = compute_of(out.dtype);
  const bool staged = type != out.dtype;  // half types are summed up in float
  void* sums = const_cast<char*>(out.data);
  if (staged) TRY(scratch(*call.device, call.stream, static_cast<uint64_t>(out.numel() * size_of(type)), &sums));
  Program p(call, "roi_align_backward");
  r.add_to(p, type);
  p.in("grad", grad).out("sum", sums, type).define("STAGED", staged);
  if (staged) p.out("out", out.data, out.dtype);
  p.value("channels", out.shape[1]).value("regions", grad.shape[0]);
  const int64_t planes = r.images * out.shape[1];
  return p.run(planes, texts::boxes::roi_align_backward,
               static_cast<double>(grad.numel()) / static_cast<double>(planes) * 400);
}

}  // namespace

Kernels boxes_kernels() {
  constexpr uint32_t E = CW_NEEDS_ELEMENTS;
  return {{"torchvision::nms", nms, kFloats | CW_INT64, 0},
          {"torchvision::roi_align", roi_align, kFloats, E},
          {"torchvision::_roi_align_backward", roi_align_backward, kFloats, E}};
}

}  // namespace causeway::portable
