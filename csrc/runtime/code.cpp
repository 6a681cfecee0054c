#include "runtime/code.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/profile.h"
#include "runtime/storage.h"
#include "runtime/stream.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

const cw_code_v1& code_table() {
  static const auto* table = static_cast<const cw_code_v1*>(vendor_extension("code.v1"));
  if (!table) fail(Kind::Vendor, vendor_name(), " has no compiler for programs: its library does not offer code.v1");
  return *table;
}

}  // namespace

cw_code_info code_info(int index) {
  cw_code_info info{};
  info.struct_size = sizeof info;
  check(code_table().info(device(index).vendor_id, &info), "code.info", index);
  info.driver[sizeof info.driver - 1] = 0;
  return info;
}

Program::Program(int index, const std::string& text, bool binary, const std::string& options) : device_(index) {
  const int32_t id = causeway::device(index).vendor_id;
  const char* more = options.empty() ? nullptr : options.c_str();
  if (!binary) {
    check(code_table().build(id, text.c_str(), more, &program_), "code.build", index);
    return;
  }
  if (!code_table().build_binary || !code_info(index).binaries)
    fail(Kind::Vendor, device_name(index), " takes programs as source only: its library has no code.build_binary");
  check(code_table().build_binary(id, text.data(), text.size(), more, &program_), "code.build_binary", index);
}

Program::~Program() {
  if (!program_ || past_use()) return;
  try {
    // Nothing that was launched may still run.
    sync_device(device_);
    check(code_table().release(program_), "code.release", device_);
  } catch (...) {
    TORCH_WARN("while a program was released: ", words_of(std::current_exception()));
  }
}

Function Program::function(const std::string& name) {
  cw_function found = nullptr;
  check(code_table().function(program_, name.c_str(), &found), "code.function", device_);
  return {shared_from_this(), name, found};
}

std::string Program::binary() const {
  if (!code_table().binary)
    fail(Kind::Vendor, vendor_name(), " does not give a program back: its library has no code.binary");
  uint64_t bytes = 0;
  check(code_table().binary(program_, nullptr, &bytes), "code.binary", device_);
  std::string out(bytes, '\0');
  check(code_table().binary(program_, out.data(), &bytes), "code.binary", device_);
  out.resize(bytes);
  return out;
}

Function::Function(std::shared_ptr<Program> program, std::string name, cw_function function)
    : program_(std::move(program)), name_(std::move(name)), function_(function) {}

void Function::launch(const std::vector<uint32_t>& grid, const std::vector<uint32_t>& group,
                      const std::vector<Argument>& args) const {
  const int index = program_->device();
  (void)device(index);  // open, and bound to this thread
  StreamState& stream = current_stream(index);
  std::array<uint32_t, 3> sizes[2] = {{1, 1, 1}, {1, 1, 1}};
  for (const auto& [given, to] : {std::pair(&grid, &sizes[0]), std::pair(&group, &sizes[1])}) {
    if (given->empty() || given->size() > 3 || std::count(given->begin(), given->end(), 0u))
      throw std::invalid_argument(c10::str("kernel ", name_, ": grid and group are one to three numbers above 0"));
    std::copy(given->begin(), given->end(), to->begin());
  }
  std::vector<cw_code_arg> passed;
  for (const Argument& a : args) {
    cw_code_arg arg{};
    if (a.tensor) {
      const at::Tensor& t = *a.tensor;
      if (t.device().type() != kDeviceType || t.device().index() != index)
        throw std::invalid_argument(c10::str("kernel ", name_, ": argument ", passed.size(), " is a tensor of ",
                                             t.device(), ", and the program is of ", device_name(index)));
      arg.v.address = materialized_data(t);
    } else {
      if (a.bytes.empty())
        throw std::invalid_argument(c10::str("kernel ", name_, ": argument ", passed.size(), " has no bytes"));
      arg.bytes = static_cast<uint32_t>(a.bytes.size());
      arg.v.value = a.bytes.data();
    }
    passed.push_back(arg);
  }
  Profiled span(Work::Kernel, name_.c_str(), &stream);
  const Recording recording(graph_of(stream), name_.c_str(), program_);
  if (Recording::graph()) span.drop();
  check(code_table().launch(function_, sizes[0].data(), sizes[1].data(), passed.data(),
                            static_cast<uint32_t>(passed.size()), stream.handle),
        "code.launch", index);
  stream.give();
  for (const Argument& a : args)
    if (a.tensor) wrote(*a.tensor->storage().unsafeGetStorageImpl());
}

}  // namespace causeway
