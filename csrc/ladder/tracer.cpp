#include "ladder/tracer.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace causeway {

void record_convolution(torch::jit::Stack& stack) {
  static const auto recorded = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_convolution", "");
  const at::Context& context = at::globalContext();
  stack.emplace_back(context.benchmarkCuDNN());
  stack.emplace_back(context.deterministicCuDNN() || context.deterministicAlgorithms());
  stack.emplace_back(context.userEnabledCuDNN());
  stack.emplace_back(context.allowTF32CuDNN(at::Float32Op::CONV));
  recorded.callBoxed(stack);
}

}  // namespace causeway
