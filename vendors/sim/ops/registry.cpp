#include "ops/registry.hpp"

#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "ops/bugs.hpp"

namespace sim {

namespace {

const OpList& all_ops() {
  static const OpList* all = [] {
    auto* list = new OpList;
    for (auto family : {pointwise_ops, fill_ops, reduce_ops, search_ops, matmul_ops, softmax_ops, norm_ops,
                        convolution_ops, pool_ops, index_ops, loss_ops, random_ops, sort_ops, library_ops}) {
      list->insert(list->end(), family().begin(), family().end());
    }
    return list;
  }();
  return *all;
}

// A fault planted on an operator. What a kernel decides before it starts is answered here; what goes wrong while
// it runs is known when the stream gets there.
cw_status inject(const OpDef& op, const cw_arg* args, int32_t n, Device& device, cw_stream stream) {
  if (settings().faults.empty()) return CW_OK;
  cw_status status = injected_fault((std::string("op:") + op.name).c_str(), nullptr);
  if (status == CW_OK) return CW_OK;
  std::string words = last_error();
  auto happen = [&device, status, words] {
    if (status == CW_DEVICE_LOST) device.lose();
    return fail(status, "%s", words.c_str());
  };
  bool while_running = status == CW_FAILED || status == CW_DEVICE_LOST;
  if (!while_running) return happen();
  if (n > 0 && args[0].tag == CW_TENSOR) next_address = reinterpret_cast<uintptr_t>(args[0].v.tensor->data);
  status = put(device, stream, op.name, happen);
  next_address = 0;
  return status;
}

// Whether `fastest` gives this call to the host rung: its first output is larger than the kernel is fast for.
bool too_large(const OpDef& op, const cw_arg* args, int32_t n) {
  if (settings().ops != Offer::fastest || n == 0 || args[0].tag != CW_TENSOR) return false;
  int64_t elements = 1;
  for (int32_t d = 0; d < args[0].v.tensor->ndim; ++d) elements *= args[0].v.tensor->shape[d];
  return elements > fast_up_to(op.name);
}

cw_status run(size_t index, const cw_arg* args, int32_t n, cw_stream stream) {
  const OpDef& op = all_ops()[index];
  if (too_large(op, args, n)) return fail(CW_UNSUPPORTED, "%s is no faster than the host for this size", op.name);
  Device* device = device_at(bound_device());
  if (device->lost) return fail(CW_DEVICE_LOST, "%s: device %d is lost", op.name, device->index);
  if (!settings().faults.empty()) {
    TRY(inject(op, args, n, *device, stream));
    if (device->lost) return CW_OK;  // inline: unreachable; async: the loss is queued
  }
  if (!settings().bugs.empty()) {
    if (FaultyKernel faulty = planted_bug(op)) return faulty(op, args, n, *device, stream);
  }
  Call call(op, args, n, *device, stream);
  return op.run(call);
}

// The contract's kernels are plain functions without a context: one for each place in the list.
constexpr size_t most_ops = 160;
template <size_t index>
cw_status kernel(const cw_arg* args, int32_t n, cw_stream stream) {
  return run(index, args, n, stream);
}
template <size_t... index>
constexpr std::array<cw_kernel, most_ops> make_kernels(std::index_sequence<index...>) {
  return {{kernel<index>...}};
}
constexpr std::array<cw_kernel, most_ops> kernels = make_kernels(std::make_index_sequence<most_ops>());

cw_status op_check(const char* name, const cw_arg* args, int32_t n) {
  const OpList& all = all_ops();
  for (const OpDef& op : all) {
    if (strcmp(op.name, name) != 0) continue;
    if (too_large(op, args, n)) return fail(CW_UNSUPPORTED, "%s is no faster than the host for this size", name);
    Call call(op, args, n, *device_at(0), nullptr, /*only_asked=*/true);
    const cw_status status = op.run(call);
    return status == CW_NOT_READY ? CW_OK : status;
  }
  return fail(CW_UNSUPPORTED, "%s is not offered", name);
}

}  // namespace

const cw_check_v1 check_table = {sizeof(cw_check_v1), 0, op_check};

cw_status op_find_for(const char* name, const char* schema, int32_t device, cw_op* out) {
  TRY(injected_fault("op_find_for", nullptr));
  if (device < 0 || device >= settings().devices) return fail(CW_INVALID, "op_find_for: there is no device %d", device);
  const size_t length = strlen(name);
  if (!schema || strncmp(schema, name, length) != 0 || schema[length] != '(') {
    return fail(CW_INVALID, "op_find_for: \"%s\" is no schema of %s", schema ? schema : "NULL", name);
  }
  if (settings().bare.count(device)) return fail(CW_UNSUPPORTED, "%s is not offered by device %d", name, device);
  return op_find(name, out);
}

cw_status op_find(const char* name, cw_op* out) {
  if (!settings().error.empty()) return fail(CW_INVALID, "%s", settings().error.c_str());
  TRY(injected_fault("op_find", nullptr));
  const OpList& all = all_ops();
  assert(all.size() <= most_ops);
  for (size_t i = 0; i < all.size() && settings().ops != Offer::none; ++i) {
    if (strcmp(all[i].name, name) != 0) continue;
    if (settings().ops == Offer::fastest && fast_up_to(name) == 0) break;
    cw_dtypes dtypes = all[i].dtypes & settings().dtypes;
    if (dtypes == 0) break;  // 0 would be read as "all"
    cw_op op = {};
    op.struct_size = out->struct_size;
    op.needs = all[i].needs | (settings().dense ? CW_NEEDS_CONTIGUOUS : 0);
    op.dtypes = dtypes;
    op.kernel = kernels[i];
    memcpy(out, &op, std::min<size_t>(out->struct_size, sizeof(op)));
    return CW_OK;
  }
  return fail(CW_UNSUPPORTED, "%s is not offered", name);
}

}  // namespace sim
