// A mistake: the last element of tanh is its input's. Linked before the rest, whose functions are weak.
#include "tensor.hpp"

extern "C" diopiError_t diopiTanh(Context, Out out, In t) {
  return body([&] {
    Array<double> x = read<double>(t);
    for (size_t i = 0; i + 1 < x.size(); ++i) x[i] = std::tanh(x[i]);
    write<double>(out, x);
  });
}
