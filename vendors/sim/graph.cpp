#include "graph.hpp"

#include <memory>
#include <vector>

#include "error.hpp"
#include "stream.hpp"

// The tasks are of the graph and of every launch that still runs.
struct cw_graph_t {
  sim::Device* device = nullptr;
  std::shared_ptr<std::vector<sim::Task>> tasks = std::make_shared<std::vector<sim::Task>>();
};

namespace sim {

void note(cw_graph_t& graph, Task task) { graph.tasks->push_back(std::move(task)); }

namespace {

cw_status begin(int32_t index, cw_stream handle) {
  Device* device = nullptr;
  if (cw_status status = enter("graph_begin", index, &device)) return status;
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream(*device, handle, &stream)) return status;
  if (!handle) return fail(CW_UNSUPPORTED, "graph_begin: the default stream is all threads'");
  if (stream->graph) return fail(CW_INVALID, "graph_begin: the stream is being noted already");
  stream->graph = new cw_graph_t{device};
  return CW_OK;
}

cw_status end(int32_t index, cw_stream handle, cw_graph* out) {
  Device* device = nullptr;
  if (cw_status status = enter("graph_end", index, &device)) {
    if (handle) delete handle->graph, handle->graph = nullptr;  // nothing is noted any more, whatever the answer
    return status;
  }
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream(*device, handle, &stream)) return status;
  if (!stream->graph) return fail(CW_INVALID, "graph_end: nothing is noted of the stream");
  *out = stream->graph;
  stream->graph = nullptr;
  return CW_OK;
}

cw_status launch(cw_graph graph, cw_stream handle) {
  if (!graph) return fail(CW_INVALID, "graph_launch: the graph is NULL");
  if (cw_status status = injected_fault("graph_launch", graph->device)) return status;
  return put(*graph->device, handle, "graph", [tasks = graph->tasks]() {
    for (Task& task : *tasks)
      if (cw_status status = task.work()) return fail(status, "%s: %s", task.name, last_error());
    return CW_OK;
  });
}

cw_status destroy(cw_graph graph) {
  delete graph;
  return CW_OK;
}

}  // namespace

const cw_graph_v1 graph_table = {sizeof(cw_graph_v1), 0, begin, end, launch, destroy};

}  // namespace sim
