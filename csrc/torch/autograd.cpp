// The end of the process and torch's autograd threads.
//
// torch runs the backward of each device on a thread of its own, and that thread drops the finished graph task only
// after the caller of backward() was woken. The task owns Python objects (the caller's context); when the interpreter
// is going down by then, taking the GIL ends the thread inside a noexcept destructor, and the process aborts.
//
// So before the interpreter goes down, each such thread is given one more, empty task, and its end is waited for: a
// thread that took it up has let go of everything before it. The task is made on a thread that Python never saw, so
// it owns no Python object itself and may be dropped at any time.
#include "torch/autograd.h"

#include <thread>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>

#include "runtime/device.h"
#include "runtime/thrown.h"
#include "runtime/torch_version.h"

namespace causeway {

namespace {

struct Nothing final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

void drain(int index) {
  at::Tensor t =
      at::empty({1}, at::TensorOptions().device(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index))));
  auto node = make_node<Nothing>();
  node->add_input_metadata(t);  // its device chooses the thread
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::Edge(node, 0)}, {t}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace

void drain_autograd_threads() {
  if (in_bad_fork() || !devices_with_threads()) return;
  std::thread([] {
    for (int i = 0; i < kMaxDevices; ++i) {
      if (!((devices_with_threads() >> i) & 1) || !device_opened(i)) continue;
      try {
        drain(i);
      } catch (...) {
        TORCH_WARN("at exit, while waiting for the autograd thread of ", device_name(i), ": ",
                   words_of(std::current_exception()));
      }
    }
  }).join();
}

}  // namespace causeway
