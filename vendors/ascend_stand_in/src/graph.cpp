// Captures: while a stream is in one, its work goes into a list, in the order of the calls. That order is right for
// every stream that joined, so an execution is that list on one stream.
#include "device.hpp"

#include <algorithm>

using namespace stand_in;

static uint32_t graphs = 0;

ENTRY Code aclmdlRICaptureBegin(void* handle, int mode) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  if (mode < 0 || mode > 2) return refuse(kInvalidParameter, "aclmdlRICaptureBegin: %d is no mode", mode);
  if (stream == stream->context->stream)
    return refuse(kInvalidHandle, "aclmdlRICaptureBegin: a default stream cannot be captured");
  if (stream->graph) return refuse(kCaptured, "aclmdlRICaptureBegin: stream %d is in a capture", stream->id);
  stream->graph = new Graph;
  stream->graph->origin = stream;
  stream->graph->id = ++graphs;
  stream->seen.clear();
  return kGood;
}

ENTRY Code aclmdlRICaptureGetInfo(void* handle, int* status, void** graph) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  if (status) *status = !stream->graph ? 0 : stream->graph->invalid ? 2 : 1;
  if (graph) *graph = stream->graph;
  return kGood;
}

ENTRY Code aclmdlRICaptureThreadExchangeMode(int* mode) {
  CALL();
  thread_local int now = 0;
  std::swap(now, *mode);
  return kGood;
}

ENTRY Code aclmdlRICaptureEnd(void* handle, void** result) {
  CALL();
  Code code;
  Stream* stream = find_stream(handle, &code);
  if (!stream) return code;
  Graph* graph = stream->graph;
  if (!graph) return refuse(kNotCaptured, "aclmdlRICaptureEnd: stream %d is in no capture", stream->id);
  if (graph->origin != stream)
    return refuse(kInvalidHandle, "aclmdlRICaptureEnd: the capture began on stream %d", graph->origin->id);
  Stream* behind = nullptr;
  {
    Device* device = stream->context->device;
    std::lock_guard<std::mutex> guard(device->lock);
    for (Stream* other : device->streams) {
      if (other->graph != graph) continue;
      if (other != stream && other->seen[other] > stream->seen[other]) behind = other;
      other->graph = nullptr;
    }
  }
  if (graph->invalid || behind) {
    Code wrong =
        behind
            ? refuse(kUnjoined, "aclmdlRICaptureEnd: stream %d joined the capture and was not waited for", behind->id)
            : refuse(kCaptureInvalid, "aclmdlRICaptureEnd: the capture is invalid since %s", graph->why.c_str());
    delete graph;
    *result = nullptr;
    return wrong;
  }
  *result = graph;
  return kGood;
}

ENTRY Code aclmdlRIExecuteAsync(void* handle, void* stream) {
  CALL();
  auto* graph = static_cast<Graph*>(handle);
  if (!graph) return refuse(kInvalidHandle, "aclmdlRIExecuteAsync: the graph is NULL");
  Code code;
  Stream* queue = find_stream(stream, &code);
  if (!queue) return code;
  for (const Task& task : graph->tasks)
    if ((code = put(queue, task))) return code;
  return kGood;
}

ENTRY Code aclmdlRIDestroy(void* handle) {
  CALL();
  if (!handle) return refuse(kInvalidHandle, "aclmdlRIDestroy: the graph is NULL");
  delete static_cast<Graph*>(handle);
  return kGood;
}

ENTRY Code aclmdlRIGetId(void* handle, uint32_t* id) {
  CALL();
  *id = static_cast<Graph*>(handle)->id;
  return kGood;
}

ENTRY Code aclmdlRIDebugJsonPrint(void* handle, const char* path, uint32_t) {
  CALL();
  FILE* file = fopen(path, "w");
  if (!file) return refuse(kInvalidParameter, "aclmdlRIDebugJsonPrint: cannot write %s", path);
  const char* comma = "";
  fprintf(file, "[");
  for (const Task& task : static_cast<Graph*>(handle)->tasks) {
    fprintf(file, "%s\n  {\"name\": \"%s\"}", comma, task.name.c_str());
    comma = ",";
  }
  fprintf(file, "\n]\n");
  fclose(file);
  return kGood;
}
