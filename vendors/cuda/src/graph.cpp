#include "graph.hpp"

#include "error.hpp"
#include "stream.hpp"

struct cw_graph_t {
  cuda::Device* device;
  cuda::GraphExec exec;
};

namespace cuda {

namespace {

cw_status begin(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("graph_begin", index, &device));
  TRY(find_stream("graph_begin", *device, handle, &stream));
  if (!has_graphs()) return fail(CW_UNSUPPORTED, "the driver has no graphs");
  // Threads allocate and copy meanwhile, this one too: cuBLAS and cuDNN make handles, programs are loaded.
  return check(cu.capture_begin(stream, kCaptureRelaxed), symbols.capture_begin);
}

cw_status end(int32_t index, cw_stream handle, cw_graph* out) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("graph_end", index, &device));
  TRY(find_stream("graph_end", *device, handle, &stream));
  Graph captured = nullptr;
  const Result ended = cu.capture_end(stream, &captured);
  // Something that CUDA does not capture, such as an allocation of a library's.
  if (ended != kSuccess || !captured)
    return fail(CW_UNSUPPORTED, "%s gave no graph (error %d)", symbols.capture_end, ended);
  GraphExec exec = nullptr;
  const Result made = cu.graph_instantiate(&exec, captured, 0);
  cu.graph_destroy(captured);
  TRY(check(made, symbols.graph_instantiate));
  *out = new cw_graph_t{device, exec};
  return CW_OK;
}

cw_status launch(cw_graph graph, cw_stream handle) {
  if (!graph) return fail(CW_INVALID, "graph_launch: the graph is NULL");
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("graph_launch", graph->device->index, &device));
  TRY(find_stream("graph_launch", *device, handle, &stream));
  return check(cu.graph_launch(graph->exec, stream), symbols.graph_launch);
}

cw_status destroy(cw_graph graph) {
  if (!graph) return fail(CW_INVALID, "graph_destroy: the graph is NULL");
  Device* device = nullptr;
  TRY(find_device("graph_destroy", graph->device->index, &device));
  const Result ended = cu.exec_destroy(graph->exec);
  delete graph;
  return check_freed(ended, symbols.exec_destroy);
}

}  // namespace

const cw_graph_v1 graph_table = {sizeof(cw_graph_v1), 0, begin, end, launch, destroy};

bool has_graphs() {
  return cu.capture_begin && cu.capture_end && cu.graph_instantiate && cu.graph_launch && cu.graph_destroy &&
         cu.exec_destroy;
}

}  // namespace cuda
