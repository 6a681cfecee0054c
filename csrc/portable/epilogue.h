// What is done with each element of a product's result before it is stored, in the product's own kernel: text of a graph
// compiler's.
#pragma once

#include <atomic>

#include "portable/compiled.h"
#include "portable/source.h"

namespace causeway::portable {

// The body of `kernel` is of one element:
//   v                              its value, in the type that is computed in
//   AT                             its place in the result, which is dense: [batch, row, column]
//   AT_BATCH, AT_ROW, AT_COLUMN    the same by dimension; of a convolution the image, the channel, and the place in it
// It stores what it makes of that through the kernel's parameters, in dtypes of its own. The product's own result is then
// not written. ROUNDED(x) is x, and no later addition becomes one operation with it.
struct EpilogueText {
  std::string before;  // functions that it calls
  std::string row;  // what of the body is the same for a row's elements, in any batch, and comes before it
  KernelText kernel;
  uint64_t id = 0;  // of the text, and not 0
  mutable std::atomic<bool> refused{false};
};

// Of one call. A kernel that takes it says so; otherwise the result is as ever, and the epilogue is still to be done.
class Epilogue {
 public:
  Epilogue(const EpilogueText& text, const std::string& name) : name(name), text_(text) {}
  uint64_t id() const { return text_.id; }
  // Adds the parameters, and FINISH(at), which a product has instead of ST(out, at, v). `by_rows`: it has FINISH_ROW too,
  // where a row begins.
  void declare(Source& source, bool by_rows) const;

  // A product could not be built with it, which is said once; none is asked to again.
  void refuse(const char* operator_name) const;

  const std::string& name;  // of the operator that it is for
  Launch arguments;  // its own, in order
  bool taken = false;

 private:
  const EpilogueText& text_;
};

// What the thread's next call of the operator is to take.
class PendingEpilogue {
 public:
  explicit PendingEpilogue(Epilogue* epilogue);
  ~PendingEpilogue();
  PendingEpilogue(const PendingEpilogue&) = delete;
  PendingEpilogue& operator=(const PendingEpilogue&) = delete;
  static Epilogue* of(const char* name);  // NULL: none, or another operator's

 private:
  Epilogue* before_;
};

// What an epilogue adds to a kernel's key, its source and its launch; nothing where there is none.
inline uint64_t id_of(const Epilogue* e) { return e ? e->id() : 0; }
inline void declare(const Epilogue* e, Source& s, bool by_rows = false) {
  if (e) e->declare(s, by_rows);
}
inline void fill(const Epilogue* e, Launch& l) {
  if (e) l.append(e->arguments);
}

}  // namespace causeway::portable
