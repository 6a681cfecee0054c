// A kernel and its launch, put together at once: each parameter is named together with its value. For kernels whose
// items know their coordinates; what they are specialised on is the text itself, the dtypes and the ranks. A call only
// notes what the source is made of, and hashes that; the source is written where no function is known by the hash.
#pragma once

#include "portable/call.h"
#include "portable/rows.h"

namespace causeway::portable {

// A text of a .cl, which a call knows by its address, or one that was put together, which it knows by what is in it. No
// longer than the call that it is given to.
class Text {
 public:
  Text(const char* fixed) : fixed_(fixed) {}
  Text(const std::string& made) : made_(&made) {}
  const char* fixed() const { return fixed_; }
  const std::string& made() const { return *made_; }
  std::string text() const { return fixed_ ? fixed_ : *made_; }

 private:
  const char* fixed_ = nullptr;
  const std::string* made_ = nullptr;
};

class Program {
 public:
  Program(KernelCall& call, const char* name);

  // A tensor called x: `x(at)` is its element, `x_set(at, v)` stores one, `x_s0` .. its strides, `x_at` (within `each`)
  // the offset of the item's coordinates, where the ranks are the same. `x_p` is the pointer.
  Program& in(const std::string& name, const Tensor& tensor) { return add(name, tensor, false); }
  Program& out(const std::string& name, const Tensor& tensor) { return add(name, tensor, true); }
  // The same of memory without strides: workspace, lists.
  Program& in(const std::string& name, const void* data, Dtype dtype);
  Program& out(const std::string& name, const void* data, Dtype dtype);
  Program& value(const std::string& name, int64_t v);  // an idx
  Program& tells();  // its text has TELL
  Program& real(const std::string& name, double v, Dtype dtype);  // of type f32 or f64
  Program& number(const std::string& name, const Number& v, Dtype dtype);
  // Text that the kernel is specialised on.
  Program& define(const std::string& name, const std::string& text);
  Program& define(const std::string& name, int64_t v) { return define(name, std::to_string(v)); }
  Program& before(const Text& text);  // functions
  // The same where `bits`, and what else the program is made of, say all of it: `add` is called only where the source is
  // written, within this call, and adds no parameters.
  Program& specialise(uint64_t bits, std::function<void(Source&)> add);

  // Put it on the stream: `body` once for each coordinate c0, c1 .. of `shape`; `u` counts them, row-major. `continue`
  // goes on with the next. `cost` in arithmetic operations.
  cw_status each(const int64_t* shape, int rank, const Text& body, double cost);
  cw_status each(const Tensor& over, const Text& body, double cost) { return each(over.shape, over.ndim, body, cost); }
  // `body` once for each u < count.
  cw_status run(int64_t count, const Text& body, double cost);
  // `body` as it is.
  cw_status as_is(const std::string& body, const std::function<cw_status(Launch&, cw_function)>& start);

  // `body` for each row u < rows of a team (rows.h), whose items have `cells` of type A: for which the text of teams,
  // and of folds, was given to `before`. `memory` declares what else is LOCAL.
  cw_status by_teams(const Teams& teams, int64_t rows, const Text& body, const std::string& memory = "");

  bool failed() const { return failed_; }

 private:
  struct Named {
    std::string name;
    int rank;
  };
  enum class Kind : uint8_t { In, Out, Value, Define, Before };
  struct Step {
    Kind kind;
    Dtype dtype;  // of memory
    const char* type;  // of a value; or the text, where that is fixed
    std::string name, text;
  };
  Program& add(const std::string& name, const Tensor& tensor, bool written);
  void pointer(const std::string& name, const void* data, Dtype dtype, bool written);
  void step(Kind kind, const std::string& name, Dtype dtype, const char* type = nullptr, const std::string& text = {});
  void mix(const std::string& text);
  void mix(const Text& text);
  void mix(uint64_t word);
  std::string source(const std::string& body) const;
  std::string loop(int rank, const std::string& body) const;
  cw_status find(const std::function<std::string()>& body, cw_function* out);
  cw_status launch(int64_t units, const std::function<std::string()>& body, double cost);

  KernelCall& call_;
  std::vector<Step> steps_;
  std::vector<std::function<void(Source&)>> specialised_;
  Launch launch_;
  uint64_t hash_[2];
  std::vector<Named> tensors_;
  int pointers_ = 0, values_ = 0;
  bool failed_ = false;  // a number that the dtype does not hold, or too many parameters
};

// "u8", "u16", "u32" or "u64": for kernels that move elements and do not look at them.
Dtype bits_of(Dtype dtype);

// The same memory as a tensor of another shape: dimension `dim` at `at`, dropped.
Tensor select(const Tensor& t, int dim, int64_t at);
// Elements from .. from + count of dimension `dim`.
Tensor narrow(const Tensor& t, int dim, int64_t from, int64_t count);
// Without dimension `dim`.
Tensor without(const Tensor& t, int dim);
// A dense tensor at `data`.
Tensor dense(const void* data, Dtype dtype, const std::vector<int64_t>& shape);
int wrap(int64_t dim, int ndim);

// out = in, of any strides and dtypes. With the arguments of `aten::copy_`.
cw_status copy_into(KernelCall& call, const Tensor& out, const Tensor& in);
cw_status fill_with(KernelCall& call, const Tensor& out, const Number& value);

// The tensors of an advanced index: which dimensions they are for, and where their common shape stands in the result.
struct IndexList {
  std::vector<int> dims;
  std::vector<Tensor> tensors;
  std::vector<int64_t> shape;  // broadcast
  int rank = 0, start = 0;
};
// False: masks, or nothing that is an index of `in`.
bool read_indices(KernelCall& call, const cw_arg& from, const Tensor& in, IndexList* list);
// Before a text with INDEXED(index, at, then): `then` with k, element `at` of `index`, counted from the front; where that is
// not within <index>_n it is told, and `good` is 0.
void add_indexed(Program& p);
// Text that sets `from`, the offset in tensor `name` of the item's coordinates, and `good`: all are within. The index's
// coordinates begin with c<start>.
std::string add_indices(Program& p, const IndexList& list, const Tensor& in, const std::string& name, int start);

// Text of V16, 16 numbers of float32 as a CPU has them, and of v_load, v_store, v_fma, v_add and v_spread. In packed.cl.
const char* vectors_of_16(const Device& device);

// mm.out and bmm.out of integers.
cw_status integer_product(KernelCall& call);
// index.Tensor_out and _index_put_impl_, of integers.
cw_status index_several(KernelCall& call, const void*);
cw_status index_put(KernelCall& call, const void*);
// index.Tensor_out where all is dense and one dimension has an index.
cw_status index_one(KernelCall& call);

// False: the device does not compute in float64.
bool has_f64(const KernelCall& call);

}  // namespace causeway::portable
