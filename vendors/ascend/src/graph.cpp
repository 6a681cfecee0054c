// Graphs by AscendCL's captures of a stream. A call that may not be in a capture makes it invalid: then there is no graph,
// and the core makes the calls at each replay.
#include "graph.hpp"

#include "acl.hpp"
#include "device.hpp"
#include "error.hpp"
#include "profile.hpp"
#include "stream.hpp"

struct cw_graph_t {
  ascend::Device* device = nullptr;
  void* model = nullptr;  // aclmdlRI
};

namespace ascend {

bool has_graphs() {
  return !*open_acl() && acl.capture_begin && acl.capture_end && acl.graph_execute && acl.graph_destroy;
}

namespace {

cw_status begin(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("graph_begin", index, &device));
  TRY(find_stream("graph_begin", *device, handle, &stream));
  if (!handle) return fail(CW_UNSUPPORTED, "graph_begin: the default stream is all threads'");
  // Relaxed: what other threads ask of the device meanwhile is no part of it and no mistake.
  TRY(check(acl.capture_begin(stream, kCaptureRelaxed), "aclmdlRICaptureBegin"));
  return handle->captured = true, CW_OK;
}

cw_status end(int32_t index, cw_stream handle, cw_graph* out) {
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("graph_end", index, &device));
  TRY(find_stream("graph_end", *device, handle, &stream));
  if (handle) handle->captured = false;
  void* model = nullptr;
  const Status ended = acl.capture_end(stream, &model);
  if (ended == kSuccess && model) return *out = new cw_graph_t{device, model}, CW_OK;
  const cw_status status = check(ended, "aclmdlRICaptureEnd");
  // Where that left the stream within the capture, the next call ends it: what the stream is given has to run again.
  void* left = nullptr;
  if (acl.capture_end(stream, &left) == kSuccess && left) acl.graph_destroy(left);
  if (status == CW_DEVICE_LOST) return status;
  return fail(CW_UNSUPPORTED, "%s", status ? last_error() : "aclmdlRICaptureEnd gave no graph");
}

cw_status launch(cw_graph graph, cw_stream handle) {
  if (!graph) return fail(CW_INVALID, "graph_launch: the graph is NULL");
  Device* device = nullptr;
  Stream stream = nullptr;
  TRY(find_device("graph_launch", graph->device->index, &device));
  TRY(find_stream("graph_launch", *device, handle, &stream));
  const Timed timed(*device, handle);
  return check(acl.graph_execute(graph->model, stream), "aclmdlRIExecuteAsync");
}

cw_status destroy(cw_graph graph) {
  if (!graph) return CW_OK;
  Device* device = nullptr;
  TRY(find_device("graph_destroy", graph->device->index, &device));
  const Status ended = acl.graph_destroy(graph->model);
  delete graph;
  return check(ended, "aclmdlRIDestroy");
}

}  // namespace

const cw_graph_v1 graph_table = {sizeof(cw_graph_v1), 0, begin, end, launch, destroy};

}  // namespace ascend
