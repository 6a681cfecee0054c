// Which cut a product takes: measured on the device, once for a dtype and a class of shapes, and kept on disk. And in
// which order a CPU reads what no cache holds: once for each of the loops that do.
//
// Nothing is computed only to be measured. Where a class is not known yet, what a program asks for takes turns with the
// cuts, between two events that the host does not wait for; as all cuts give the same bits, no number shows it.
#pragma once

#include "portable/call.h"
#include "portable/cut.h"

namespace causeway::portable {

struct Tuning;
struct Class;

// One call's turn.
class Turn {
 public:
  enum Use : uint8_t { matrix, batch, convolution, gradient };
  enum Loop : uint8_t { elements, long_rows, rows };

  Turn(const KernelCall& call, Use use, Dtype dtype, const ProductSize& size);
  // On a CPU: of `function`, as only its own times are compared, for `bytes` of memory.
  Turn(const KernelCall& call, Loop loop, cw_function function, int64_t bytes);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  const Cut& cut() const { return cut_; }
  // Around the launches.
  cw_status start();
  cw_status end();
  // After a failure: true, and the cut is now the usual one, where another one was tried. It is not tried again.
  bool refused();

 private:
  void take(size_t index);
  void begin(Class& c, cw_function function);

  const KernelCall& call_;
  const ProductSize size_;
  Tuning* tuning_;
  const std::vector<Cut>* cuts_;
  Class* class_ = nullptr;  // where this call is measured, or built for it
  Class* settled_ = nullptr;  // where the cut is the one chosen
  size_t index_ = 0;
  bool timed_ = false;
  double began_ = 0;  // by the host's clock, in ms
  Cut cut_;
};

// Launch what has `bytes` of memory to go through, as `body(by_turns)` does.
template <class Body>
cw_status in_some_order(const KernelCall& call, Turn::Loop loop, cw_function function, int64_t bytes,
                        const Body& body) {
  Turn turn(call, loop, function, bytes);
  TRY(turn.start());
  TRY(body(turn.cut().kind == Cut::by_turns));
  return turn.end();
}

// Run `body(turn)`, a second time with the usual cut where a tried one fails: a compiler may refuse it, or a launch.
template <class Body>
cw_status with_cut(const KernelCall& call, Turn::Use use, Dtype dtype, const ProductSize& size, const Body& body) {
  Turn turn(call, use, dtype, size);
  const cw_status status = body(turn);
  return status != CW_OK && status != CW_UNSUPPORTED && turn.refused() ? body(turn) : status;
}

}  // namespace causeway::portable
