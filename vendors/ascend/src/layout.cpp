#include "layout.hpp"

#include <cstddef>

#include "call.hpp"
#include "device.hpp"
#include "error.hpp"
#include "memory.hpp"
#include "profile.hpp"
#include "stream.hpp"

namespace ascend {

namespace {

using SizeAndFormat = Status (*)(const AclTensor*, int, int, int64_t**, uint64_t*, int*);

struct Cast {  // what a conversion needs of CANN
  SizeAndFormat size_and_format = nullptr;
  Operation cast, product, sum;  // the conversion, and those that read its result
  std::string missing;  // what is not there; empty: all is
};

const Cast& cast() {
  static const auto& found = *[] {
    auto* made = new Cast;
    made->size_and_format = reinterpret_cast<SizeAndFormat>(find_aclnn("aclnnNpuFormatCastCalculateSizeAndFormat"));
    if (!made->size_and_format) made->missing = "aclnnNpuFormatCastCalculateSizeAndFormat";
    const auto look = [&](Operation& operation, const char* name) {
      operation.name = name;
      if (!operation.find() && made->missing.empty()) made->missing = std::string("aclnn") + name;
    };
    look(made->cast, "NpuFormatCast"), look(made->product, "MatmulWeightNz"), look(made->sum, "AddmmWeightNz");
    return made;
  }();
  return found;
}

// Why there is no such format; empty: there is.
std::string words_for_layouts() {
  if (*open_acl()) return open_acl();
  if (*open_aclnn()) return open_aclnn();
  int32_t devices = 0;
  if (cw_status status = device_count(&devices)) return (void)status, last_error();
  if (!devices) return "there is no device";
  // By CANN's documentation A2 and A3, by torch_npu's own rule the 950 too.
  const std::string soc = soc_name();
  bool taken = false;
  for (const char* begin : {"Ascend910B", "Ascend910_93", "Ascend950"}) taken = taken || soc.rfind(begin, 0) == 0;
  if (!taken)
    return "chips of A2, A3 and the 950 take such weights, and this is " + (soc.empty() ? "none of them" : soc);
  if (!cast().missing.empty()) return "CANN's libraries do not have " + cast().missing;
  if (!host.packed) return "this Causeway keeps none";
  return "";
}

constexpr int64_t kSide = 16;  // of a block of two-byte elements

int64_t blocks(int64_t side) { return (side + kSide - 1) / kSide; }

// aclTensors of a call, which end with it.
class Pair {
 public:
  // The matrix in memory and its form. NULL where aclnn makes none.
  Pair(const DLTensor& t, const Nz& nz, void* form) {
    const int type = type_of(t.dtype);
    const int64_t strides[] = {nz.sides[1], 1}, all = nz.sides[0] * nz.sides[1];
    plain = aclnn.tensor(nz.sides, 2, type, strides, 0, kFormatNd, &all, 1, t.data);
    blocked = aclnn.tensor(nz.sides, 2, type, strides, 0, kFormatNz, nz.blocks, 4, form);
  }
  ~Pair() {
    if (plain) aclnn.destroy_tensor(plain);
    if (blocked) aclnn.destroy_tensor(blocked);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  AclTensor *plain = nullptr, *blocked = nullptr;
};

// Asks CANN for the format and shape of the conversion's result. UNSUPPORTED: it makes none, or another than is read here.
cw_status ask(const AclTensor* from, int format, int type, const Nz* expected) {
  int64_t* shape = nullptr;
  uint64_t count = 0;
  int actual = kUndefinedType;
  const Status result = cast().size_and_format(from, format, type, &shape, &count, &actual);
  if (result != kSuccess)
    return fail(CW_UNSUPPORTED, "aclnnNpuFormatCastCalculateSizeAndFormat: %s", words_of(result).c_str());
  bool same = actual == format && (!expected || count == 4);
  for (uint64_t d = 0; same && expected && d < 4; ++d) same = shape[d] == expected->blocks[d];
  delete[] shape;  // whoever asks frees it
  return same ? CW_OK : fail(CW_UNSUPPORTED, "aclnnNpuFormatCast makes a format that is not known (%d)", actual);
}

cw_status start(const char* entry, int32_t index, uint32_t layout, const DLTensor& t, Device** device, Nz* nz) {
  TRY(find_device(entry, index, device));
  if (layout != kNzLayout) return fail(CW_INVALID, "%s: there is no layout %u", entry, layout);
  return nz_of(t, nz) ? CW_OK : fail(CW_UNSUPPORTED, "FRACTAL_NZ is of dense matrices of float16 and bfloat16");
}

const char* name(uint32_t layout) { return layout == kNzLayout ? "fractal_nz" : nullptr; }

uint64_t bytes_of_form(const Nz& nz) {
  return static_cast<uint64_t>(nz.blocks[0] * nz.blocks[1] * nz.blocks[2] * nz.blocks[3]) * 2;
}

cw_status packed_bytes(int32_t index, uint32_t layout, const DLTensor* tensor, uint64_t* bytes, uint32_t* uses) {
  Device* device = nullptr;
  Nz nz;
  TRY(start("packed_bytes", index, layout, *tensor, &device, &nz));
  const Pair pair(*tensor, nz, nullptr);
  if (!pair.plain) return fail(CW_UNSUPPORTED, "packed_bytes: aclnn makes no such tensor");
  TRY(ask(pair.plain, kFormatNz, type_of(tensor->dtype), &nz));
  return *bytes = bytes_of_form(nz), *uses = 2, CW_OK;
}

// aclnnNpuFormatCast on the stream. A kernel has workspace; a replay, which may convert as well, has none.
cw_status convert(const char* entry, Device& device, cw_stream handle, AclTensor* from, AclTensor* to) {
  if (!from || !to) return fail(CW_FAILED, "%s: aclnn could not make a tensor", entry);
  Stream stream = nullptr;
  TRY(find_stream(entry, device, handle, &stream));
  uint64_t bytes = 0;
  AclExecutor* executor = nullptr;
  using Workspace = Status (*)(AclTensor*, AclTensor*, uint64_t*, AclExecutor**);
  const Status first = reinterpret_cast<Workspace>(cast().cast.workspace)(from, to, &bytes, &executor);
  if (first != kSuccess) return fail(CW_UNSUPPORTED, "%s: aclnnNpuFormatCast: %s", entry, words_of(first).c_str());
  void *workspace = nullptr, *own = nullptr;
  if (bytes && host.scratch(device.index, handle, bytes, &workspace)) {
    const cw_status status = mem_alloc(device.index, bytes, &own);
    if (status) return aclnn.destroy_executor ? (aclnn.destroy_executor(executor), status) : status;
    workspace = own;
  }
  cw_status status = CW_OK;
  {
    const Numbered numbered(device, handle);
    status = check(cast().cast.run(workspace, bytes, executor, stream), "aclnnNpuFormatCast");
  }
  if (!own) return status;
  const cw_status waited = check(acl.stream_sync(stream), "aclrtSynchronizeStream");
  const cw_status freed = mem_free(device.index, own);
  return status ? status : waited ? waited : freed;
}

cw_status pack(int32_t index, uint32_t layout, const DLTensor* tensor, void* packed, cw_stream stream) {
  Device* device = nullptr;
  Nz nz;
  TRY(start("pack", index, layout, *tensor, &device, &nz));
  const Pair pair(*tensor, nz, packed);
  return convert("pack", *device, stream, pair.plain, pair.blocked);
}

cw_status unpack(int32_t index, uint32_t layout, const void* packed, const DLTensor* tensor, cw_stream stream) {
  Device* device = nullptr;
  Nz nz;
  TRY(start("unpack", index, layout, *tensor, &device, &nz));
  const Pair pair(*tensor, nz, const_cast<void*>(packed));
  if (!pair.blocked) return fail(CW_FAILED, "unpack: aclnn could not make a tensor");
  TRY(ask(pair.blocked, kFormatNd, type_of(tensor->dtype), nullptr));
  return convert("unpack", *device, stream, pair.blocked, pair.plain);
}

const cw_layout_v1 the_table = {sizeof(cw_layout_v1), 1, name, packed_bytes, pack, unpack};

}  // namespace

bool nz_of(const DLTensor& t, Nz* out) {
  const int type = type_of(t.dtype);
  if (t.ndim != 2 || (type != kFloat16 && type != kBfloat16)) return false;
  const int64_t rows = t.shape[0], columns = t.shape[1];
  if (rows < 2 || columns < 2) return false;
  if (t.strides[1] == 1 && t.strides[0] == columns)
    out->sides[0] = rows, out->sides[1] = columns;
  else if (t.strides[0] == 1 && t.strides[1] == rows)
    out->sides[0] = columns, out->sides[1] = rows;
  else
    return false;
  out->blocks[0] = blocks(out->sides[1]), out->blocks[1] = blocks(out->sides[0]);
  out->blocks[2] = out->blocks[3] = kSide;
  return true;
}

bool may_have_form(const cw_arg& arg) {
  Nz nz;
  return arg.tag == CW_TENSOR && layout_table() && nz_of(*arg.v.tensor, &nz);
}

const cw_layout_v1* layout_table() {
  static const bool offered = words_for_layouts().empty();
  return offered ? &the_table : nullptr;
}

std::string notes_for_layouts() {
  const std::string words = words_for_layouts();
  return words.empty() ? "" : "weights are not kept in FRACTAL_NZ: " + words;
}

}  // namespace ascend
