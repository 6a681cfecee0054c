// What is put together here, and is in no .cl: loops over a call's coordinates, as many as it has dimensions.
#include "portable/program.h"

#include <algorithm>
#include <cstring>

#include "portable/kernels/pointwise.h"
#include "portable/portable.h"
#include "portable/program.cl.h"

namespace causeway::portable {

Program::Program(KernelCall& call, const char* name) : call_(call), hash_{family(name), 0x9E3779B97F4A7C15ull} {
  steps_.reserve(32);
  tensors_.reserve(8);
}

void Program::mix(uint64_t word) {
  hash_[0] = (hash_[0] ^ word) * 0xff51afd7ed558ccdull;
  hash_[0] ^= hash_[0] >> 32;
  hash_[1] = (hash_[1] + word) * 0xc4ceb9fe1a85ec53ull;
  hash_[1] ^= hash_[1] >> 29;
}

void Program::mix(const std::string& text) {
  mix(text.size());  // where one text ends
  for (size_t at = 0; at < text.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
    mix(word);
  }
}

void Program::mix(const Text& text) {
  if (text.fixed())
    mix(reinterpret_cast<uint64_t>(text.fixed()));
  else
    mix(text.made());
}

void Program::step(Kind kind, const std::string& name, Dtype dtype, const char* type, const std::string& text) {
  mix(static_cast<uint64_t>(kind) | static_cast<uint64_t>(dtype) << 8);
  mix(name);
  if (type) mix(family(type));
  if (!text.empty()) mix(text);
  steps_.push_back({kind, dtype, type, name, text});
}

void Program::pointer(const std::string& name, const void* data, Dtype dtype, bool written) {
  if (dtype > kF64 || (dtype == kF64 && !has_f64(call_)) || ++pointers_ > static_cast<int>(Launch::kMost)) {
    failed_ = true;
    return;
  }
  step(written ? Kind::Out : Kind::In, name, dtype);
  launch_.pointer(data);
}

Program& Program::add(const std::string& name, const Tensor& tensor, bool written) {
  pointer(name, tensor.data, tensor.dtype, written);
  for (int d = 0; d < tensor.ndim; ++d) value(name + "_s" + std::to_string(d), tensor.strides[d]);
  tensors_.push_back({name, tensor.ndim});
  return *this;
}

Program& Program::in(const std::string& name, const void* data, Dtype dtype) {
  pointer(name, data, dtype, false);
  return *this;
}
Program& Program::out(const std::string& name, const void* data, Dtype dtype) {
  pointer(name, data, dtype, true);
  return *this;
}

Program& Program::value(const std::string& name, int64_t v) {
  if (++values_ > static_cast<int>(Launch::kMost) - 16) return failed_ = true, *this;
  step(Kind::Value, name, kOther, "idx");
  launch_.value(v);
  return *this;
}

Program& Program::tells() {
  void* words = nullptr;
  int64_t teller = 0;
  if (services().tells(call_.name, &words, &teller)) return failed_ = true, *this;
  return out("told", words, kU64).value("teller", teller);
}

Program& Program::real(const std::string& name, double v, Dtype dtype) { return number(name, {kF64, v, 0}, dtype); }

Program& Program::number(const std::string& name, const Number& v, Dtype dtype) {
  if (++values_ > static_cast<int>(Launch::kMost) - 16) return failed_ = true, *this;
  const Dtype type = compute_of(dtype);
  step(Kind::Value, name, kOther, type == kBool ? "u8" : name_of(type));
  if (!add_number(launch_, v, type)) failed_ = true;
  return *this;
}

Program& Program::define(const std::string& name, const std::string& text) {
  step(Kind::Define, name, kOther, nullptr, text);
  return *this;
}

Program& Program::before(const Text& text) {
  if (!text.fixed()) return step(Kind::Before, {}, kOther, nullptr, text.made()), *this;
  mix(text);
  steps_.push_back({Kind::Before, kOther, text.fixed(), {}, {}});
  return *this;
}

Program& Program::specialise(uint64_t bits, std::function<void(Source&)> add) {
  mix(bits);
  specialised_.push_back(std::move(add));
  return *this;
}

std::string Program::source(const std::string& body) const {
  Source s(call_.device->info);
  for (const auto& add : specialised_) add(s);
  for (const Step& step : steps_) {
    const std::string p = step.name + "_p";
    switch (step.kind) {
      case Kind::In:
      case Kind::Out: {
        const std::string d = name_of(step.dtype), store = storage_of(step.dtype);
        step.kind == Kind::Out ? s.out(store, p) : s.in(store, p);
        s.define(step.name + "(i_)", "LD_" + d + "(" + p + ", i_)");
        if (step.kind == Kind::Out) s.define(step.name + "_set(i_, v_)", "ST_" + d + "(" + p + ", i_, v_)");
        break;
      }
      case Kind::Value:
        s.value(step.type, step.name);
        break;
      case Kind::Define:
        s.define(step.name, step.text);
        break;
      case Kind::Before:
        s.before(step.type ? step.type : step.text);
        break;
    }
  }
  return s.kernel(body);
}

cw_status Program::find(const std::function<std::string()>& body, cw_function* out) {
  if (failed_) return CW_UNSUPPORTED;
  return call_.device->function({hash_[0], hash_[1], family("program"), 0}, [&] { return source(body()); }, out);
}

cw_status Program::launch(int64_t units, const std::function<std::string()>& body, double cost) {
  cw_function function = nullptr;
  TRY(find(body, &function));
  return launch_.run(*call_.device, function, units, cost, call_.stream);
}

cw_status Program::by_teams(const Teams& teams, int64_t rows, const Text& body, const std::string& memory) {
  if (rows <= 0) return CW_OK;
  value("rows", rows);
  mix(teams.bits());
  mix(memory);
  mix(body);
  cw_function function = nullptr;
  TRY(find([&] { return "LOCAL A cells[2 * ITEMS];\n" + memory + each_row(body.text()); }, &function));
  return launch_.run_groups(*call_.device, function, teams.groups(rows), teams.items, call_.stream);
}

cw_status Program::run(int64_t count, const Text& body, double cost) {
  if (count <= 0) return CW_OK;
  value("u_count", count);
  mix(body);
  return launch(count, [&] { return around(texts::program::count, body.text() + "\n"); }, cost);
}

cw_status Program::as_is(const std::string& body, const std::function<cw_status(Launch&, cw_function)>& start) {
  if (failed_) return CW_UNSUPPORTED;
  mix(body);
  cw_function function = nullptr;
  TRY(call_.device->function({hash_[0], hash_[1], family("program"), 0}, [&] { return source(body); }, &function));
  return start(launch_, function);
}

cw_status Program::each(const int64_t* shape, int rank, const Text& body, double cost) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= shape[d];
  if (count <= 0) return CW_OK;
  if (rank == 0) {
    const int64_t one = 1;
    return each(&one, 1, body, cost);
  }
  mix(body);
  mix(static_cast<uint64_t>(rank));
  value("u_count", count);
  for (int d = 0; d < rank; ++d) value("n" + std::to_string(d), shape[d]);
  return launch(count, [&] { return loop(rank, body.text()); }, cost);
}

std::string Program::loop(int rank, const std::string& body) const {
  std::string walk, at;
  for (int d = rank - 2; d >= 0; --d) {
    const std::string D = std::to_string(d);
    walk += "const idx c" + D + " = " + (d == 0 ? "u_row" : "u_row % n" + D + "; u_row /= n" + D) + "; ";
  }
  for (const Named& t : tensors_) {
    if (t.rank != rank) continue;
    at += "const idx " + t.name + "_at = ";
    for (int d = 0; d < rank; ++d)
      at += (d ? " + c" : "c") + std::to_string(d) + " * " + t.name + "_s" + std::to_string(d);
    at += "; ";
  }
  const std::string last = std::to_string(rank - 1);
  return "#define U_SIZE n" + last + "\n#define U_LAST c" + last + "\n#define U_WALK " + walk + "\n#define U_OFFSETS " +
         at + "\n" + around(call_.device->in_turn() ? texts::program::rows : texts::program::elements, body + "\n");
}

Dtype bits_of(Dtype dtype) {
  const int64_t size = size_of(dtype);
  return size == 1 ? kU8 : size == 2 ? kU16 : size == 4 ? kU32 : kU64;
}

Tensor select(const Tensor& t, int dim, int64_t at) {
  Tensor r = t;
  r.data += at * t.strides[dim] * size_of(t.dtype);
  for (int d = dim; d + 1 < t.ndim; ++d) r.shape[d] = t.shape[d + 1], r.strides[d] = t.strides[d + 1];
  --r.ndim;
  return r;
}

Tensor narrow(const Tensor& t, int dim, int64_t from, int64_t count) {
  Tensor r = t;
  r.data += from * t.strides[dim] * size_of(t.dtype);
  r.shape[dim] = count;
  return r;
}

Tensor without(const Tensor& t, int dim) { return t.ndim == 0 ? t : select(t, dim, 0); }

Tensor dense(const void* data, Dtype dtype, const std::vector<int64_t>& shape) {
  Tensor t;
  t.data = static_cast<const char*>(data);
  t.dtype = dtype;
  t.ndim = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (int d = t.ndim - 1; d >= 0; --d) t.shape[d] = shape[d], t.strides[d] = stride, stride *= shape[d];
  return t;
}

int wrap(int64_t dim, int ndim) { return static_cast<int>(dim < 0 ? dim + std::max(ndim, 1) : dim); }

bool has_f64(const KernelCall& call) { return call.device->info.arithmetic & CW_FLOAT64; }

cw_status copy_into(KernelCall& call, const Tensor& out, const Tensor& in) {
  const Pointwise& copy = pointwise_named("aten::copy_");
  return run_pointwise(call, copy, {out, in}, {});
}

cw_status fill_with(KernelCall& call, const Tensor& out, const Number& value) {
  const Pointwise& fill = pointwise_named("aten::fill_.Scalar");
  return run_pointwise(call, fill, {out}, {value});
}

}  // namespace causeway::portable
