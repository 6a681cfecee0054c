// How an operator is written. OP(Name, (parameters), { body }) makes aclnnNameGetWorkspaceSize and aclnnName. The body
// is phase one: it checks, and gives the work to `op`. The parameters are AscendCL's, in aclnn's order.
#pragma once

#include <functional>
#include <map>

#include "tensor.hpp"

namespace ops {

struct Op;

}  // namespace ops

struct aclOpExecutor {
  std::string name;
  std::function<void()> work;
  std::vector<char*> addresses;  // Of its tensors, in the order in which the operator asked for them.
  std::vector<T> tensors;        // Which these are: an executor that is kept refers to them.
  std::vector<char> written;     // Which of them are results.
  size_t listed = 0;             // How many of them came in lists.
  size_t most = 0;               // How many tensors its parameters are, at most: absent ones count.
  std::map<size_t, T> told;      // Whose addresses were replaced, by the index that was given.
  uint64_t workspace = 0;
  bool repeatable = false;
  bool waits = false;  // Phase two ends when the work has: it tells a shape.
};

namespace ops {

// What a phase one has to say.
struct Op {
  aclOpExecutor* executor;

  View in(T tensor, const char* what = "an input");
  View maybe(T tensor);
  View out(T tensor, const char* what = "the result");
  View out_maybe(T tensor);
  // The blocks of a matrix in FRACTAL_NZ, as it lies in memory row by row: [rows / 16, 16, columns / 16, 16], with what
  // fills the last ones up. Its sides are those of `rows` and `columns`.
  View blocks(T tensor, const char* what, int64_t rows, int64_t columns, bool written = false);
  std::vector<View> all(L list, const char* what = "a list");
  std::vector<View> all_out(L list, const char* what = "the results");
  void run(std::function<void()> work) { executor->work = std::move(work); }
  void workspace(uint64_t bytes) { executor->workspace = bytes; }
  // The work tells the result's shape, so phase two waits for it.
  void wait() { executor->waits = true; }

 private:
  View take(T tensor, bool written, bool blocked = false);
};

constexpr int kNd = 2, kFractalNz = 29;  // Formats.
constexpr int64_t kBlock = 16;           // Rows of a block; its columns have 32 bytes.
bool is_private(int format);             // No plain order of elements.

aclScalar number(S scalar, const char* what = "a scalar");
Dims dims(I array);
bool flag(B mask, size_t at);

// Checks, with messages that name the operator.
void same_shape(const View& a, const Dims& shape, const char* what);
Dims broadcast(const Dims& a, const Dims& b);
void need_float(const View& view, const char* what);
void need_whole(const View& view, const char* what);
// What the matrix unit takes: FLOAT, FLOAT16 and BFLOAT16.
void need_matrix(const View& view, const char* what);

// `parameters`: their types and names, as text.
int begin(stand_in::Site& site, const char* name, const char* parameters, uint64_t* workspace, aclOpExecutor** executor,
          const std::function<void(Op&)>& build);
int launch(stand_in::Site& site, const char* name, void* workspace, uint64_t size, aclOpExecutor* executor,
           void* stream);

}  // namespace ops

#define OP_UNPACK(...) __VA_ARGS__
#define OP(Name, parameters, ...)                                                                                \
  ENTRY int aclnn##Name##GetWorkspaceSize(OP_UNPACK parameters, uint64_t* workspace, aclOpExecutor** executor) { \
    static ::stand_in::Site site("aclnn" #Name "GetWorkspaceSize");                                              \
    return ::ops::begin(site, "aclnn" #Name, #parameters, workspace,                                             \
                        executor, [&]([[maybe_unused]] ::ops::Op& op) __VA_ARGS__);                              \
  }                                                                                                              \
  ENTRY int aclnn##Name(void* workspace, uint64_t size, aclOpExecutor* executor, void* stream) {                 \
    static ::stand_in::Site site("aclnn" #Name);                                                                 \
    return ::ops::launch(site, "aclnn" #Name, workspace, size, executor, stream);                                \
  }
