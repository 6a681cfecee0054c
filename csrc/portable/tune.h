// Which cut a product takes: measured on the device, once for a dtype and a class of shapes, and kept on disk.
//
// Nothing is computed only to be measured. Where a class is not known yet, products that a program asks for take turns
// with the cuts, between two events that the host does not wait for; as all cuts give the same bits, no number shows it.
#pragma once

#include "call.h"
#include "cut.h"

namespace causeway::portable {

struct Tuning;
struct Class;

// One call's turn.
class Turn {
 public:
  enum Use : uint8_t { matrix, batch, convolution, gradient };

  Turn(const Call& call, Use use, Dtype dtype, const ProductSize& size);
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

  const Call& call_;
  const ProductSize& size_;
  Tuning* tuning_;
  const std::vector<Cut>* cuts_;
  Class* class_ = nullptr;  // where this call is measured, or built for it
  Class* settled_ = nullptr;  // where the cut is the one chosen
  size_t index_ = 0;
  bool timed_ = false, done_ = false;
  double began_ = 0;  // by the host's clock, in ms
  Cut cut_;
};

// Run `body(turn)`, a second time with the usual cut where a tried one fails: a compiler may refuse it, or a launch.
template <class Body>
cw_status with_cut(const Call& call, Turn::Use use, Dtype dtype, const ProductSize& size, const Body& body) {
  Turn turn(call, use, dtype, size);
  const cw_status status = body(turn);
  return status != CW_OK && status != CW_UNSUPPORTED && turn.refused() ? body(turn) : status;
}

}  // namespace causeway::portable
