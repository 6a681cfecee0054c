#include "op.hpp"

#include <cstring>
#include <memory>

using namespace stand_in;

namespace ops {

bool is_private(int format) {
  switch (format) {
    case 3:   // NC1HWC0
    case 4:   // FRACTAL_Z
    case kFractalNz:
    case 32:  // NDC1HWC0
    case 33:  // FRACTAL_Z_3D
    case 50:  // FRACTAL_NZ_C0_16
    case 51:  // FRACTAL_NZ_C0_32
      return true;
    default:
      return false;
  }
}

View Op::take(T tensor, bool written, bool blocked) {
  if (!blocked && is_private(tensor->format))
    reject("a tensor has format %d, the operator takes plain ones", tensor->format);
  View view = view_or_none(tensor);
  view.slot = executor->addresses.size();
  executor->addresses.push_back(static_cast<char*>(tensor->data));
  executor->tensors.push_back(tensor);
  executor->written.push_back(written);
  return view;
}

View Op::in(T tensor, const char* what) {
  view_of(tensor, what);
  return take(tensor, false);
}
View Op::blocks(T tensor, const char* what, int64_t rows, int64_t columns, bool written) {
  View view = view_of(tensor, what);
  if (tensor->format != kFractalNz) reject("%s has format %d, expected FRACTAL_NZ (29)", what, tensor->format);
  const int64_t width = 32 / int64_t(size_of(view.dtype));
  const int64_t down = (rows + kBlock - 1) / kBlock, across = (columns + width - 1) / width;
  if (tensor->storage != Dims{across, down, kBlock, width})
    reject("%s has a storage of %s, expected %s", what, text_of(tensor->storage).c_str(),
           text_of({across, down, kBlock, width}).c_str());
  view = take(tensor, written, true);
  view.shape = {down, kBlock, across, width};
  view.stride = {kBlock * width, width, down * kBlock * width, 1};
  return view;
}
View Op::maybe(T tensor) { return tensor ? take(tensor, false) : View(); }
View Op::out(T tensor, const char* what) {
  view_of(tensor, what);
  return take(tensor, true);
}
View Op::out_maybe(T tensor) { return tensor ? take(tensor, true) : View(); }

std::vector<View> Op::all(L list, const char* what) {
  if (!list) throw Refusal(161001, std::string(what) + " is NULL");
  std::vector<View> views;
  for (T tensor : list->tensors) views.push_back(in(tensor, what));
  executor->listed += views.size();
  return views;
}
std::vector<View> Op::all_out(L list, const char* what) {
  if (!list) throw Refusal(161001, std::string(what) + " is NULL");
  std::vector<View> views;
  for (T tensor : list->tensors) views.push_back(out(tensor, what));
  executor->listed += views.size();
  return views;
}

aclScalar number(S scalar, const char* what) {
  if (!scalar) throw Refusal(161001, std::string(what) + " is NULL");
  return *scalar;
}

Dims dims(I array) { return array ? array->values : Dims(); }

bool flag(B mask, size_t at) {
  if (!mask || at >= mask->values.size()) reject("the mask has %zu entries", mask ? mask->values.size() : 0);
  return mask->values[at];
}

void same_shape(const View& a, const Dims& shape, const char* what) {
  if (a.shape != shape) reject("%s has shape %s, expected %s", what, text_of(a.shape).c_str(), text_of(shape).c_str());
}

Dims broadcast(const Dims& a, const Dims& b) {
  Dims result(a.size() > b.size() ? a.size() : b.size());
  for (size_t i = 0; i < result.size(); ++i) {
    size_t from_end = result.size() - i;
    int64_t x = from_end <= a.size() ? a[a.size() - from_end] : 1,
            y = from_end <= b.size() ? b[b.size() - from_end] : 1;
    if (x != y && x != 1 && y != 1) reject("shapes %s and %s do not broadcast", text_of(a).c_str(), text_of(b).c_str());
    result[i] = x == 1 ? y : x;
  }
  return result;
}

void need_float(const View& view, const char* what) {
  if (!is_float(view.dtype)) reject("%s is %s, expected a float", what, name_of(view.dtype));
}
void need_whole(const View& view, const char* what) {
  if (!is_whole(view.dtype)) reject("%s is %s, expected whole numbers", what, name_of(view.dtype));
}
void need_matrix(const View& view, const char* what) {
  if (view.dtype != kFloat && view.dtype != kHalf && view.dtype != kBfloat16)
    reject("%s is %s, expected FLOAT, FLOAT16 or BFLOAT16", what, name_of(view.dtype));
}

namespace {

// How many of the parameters are a tensor or a list of tensors.
size_t tensors_among(const char* parameters) {
  size_t count = 0;
  for (const char* at = parameters; *at; ++at) {
    if (*at != '(' && *at != ',') continue;
    const char* type = at + 1 + (at[1] == ' ');
    count += strchr("TOL", *type) && strchr(" ,)", type[1]);
  }
  return count;
}

}  // namespace

int begin(Site& site, const char* name, const char* parameters, uint64_t* workspace, aclOpExecutor** result,
          const std::function<void(Op&)>& build) {
  if (Code code = site.begin()) return code;
  if (!workspace || !result)
    return refuse(161001, "%s: the place for the workspace's size or the executor is NULL", name);
  if (Code code = need_context(name)) return code;
  auto executor = std::make_unique<aclOpExecutor>();
  executor->name = name;
  try {
    Op op{executor.get()};
    build(op);
  } catch (const Refusal& refusal) {
    return refuse(refusal.code, "%s: %s", name, refusal.what());
  }
  executor->most = tensors_among(parameters) + executor->listed;
  *workspace = executor->workspace;
  *result = executor.release();
  return kGood;
}

int launch(Site& site, const char* name, void* workspace, uint64_t size, aclOpExecutor* executor, void* stream) {
  if (Code code = site.begin()) return code;
  if (!executor) return refuse(161001, "%s: the executor is NULL", name);
  if (executor->name != name) return refuse(161002, "%s: the executor is one of %s", name, executor->name.c_str());
  std::unique_ptr<aclOpExecutor> owned(executor->repeatable ? nullptr : executor);
  if (executor->workspace && (size < executor->workspace || !resolve(workspace, executor->workspace)))
    return refuse(161002, "%s: it needs a workspace of %lu bytes of device memory, it got %lu", name,
                  executor->workspace, size);
  // The addresses are those of this launch, whatever is put into the executor later.
  static const char* falsified = setting("WRONG", "");
  auto work = [run = executor->work, addresses = executor->addresses, wrong = executor->name == falsified]() -> Code {
    try {
      addresses_of_work = &addresses;
      wrong_work = wrong;
      if (run) run();
      return kGood;
    } catch (const std::exception& failure) {
      return broken(kVectorException, failure.what());
    }
  };
  if (Code code = enqueue(stream, name, work, true)) return code;
  if (!executor->waits) return kGood;
  return wait_for(stream);
}

}  // namespace ops

ENTRY int aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  CALL();
  if (!executor) return refuse(161001, "aclSetAclOpExecutorRepeatable: the executor is NULL");
  executor->repeatable = true;
  return kGood;
}

ENTRY int aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  CALL();
  delete executor;
  return kGood;
}

// Replaces the address of a tensor of an executor: of one of its inputs, of its results or of both. The tensor says which.
// `index` is its place among the operator's tensors, those of lists one by one, absent ones too: it has to be one that
// there is, and always the same for a tensor.
static int set_address(const char* who, aclOpExecutor* executor, size_t index, int written, aclTensor* tensor,
                       void* address) {
  if (!executor || !tensor) return refuse(561103, "%s: the executor or the tensor is NULL", who);
  if (!executor->repeatable) return refuse(161002, "%s: the executor is not repeatable", who);
  if (reinterpret_cast<uintptr_t>(address) % 32)
    return refuse(161002, "%s: the address %p is no multiple of 32", who, address);
  size_t changed = 0;
  for (size_t i = 0; i < executor->addresses.size(); ++i) {
    if (executor->tensors[i] != tensor || (written >= 0 && executor->written[i] != written)) continue;
    executor->addresses[i] = static_cast<char*>(address);
    ++changed;
  }
  if (index >= executor->most)
    return refuse(161002, "%s: there is no tensor %zu, there are %zu", who, index, executor->most);
  if (!changed) return refuse(161002, "%s: the tensor is none of those that the executor was made with", who);
  if (written < 0 && executor->told.emplace(index, tensor).first->second != tensor)
    return refuse(161002, "%s: tensor %zu is another one", who, index);
  tensor->data = address;
  return kGood;
}

ENTRY int aclSetTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
  CALL();
  return set_address(__func__, executor, index, -1, tensor, address);
}
ENTRY int aclSetInputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
  CALL();
  return set_address(__func__, executor, index, 0, tensor, address);
}
ENTRY int aclSetOutputTensorAddr(aclOpExecutor* executor, size_t index, aclTensor* tensor, void* address) {
  CALL();
  return set_address(__func__, executor, index, 1, tensor, address);
}
