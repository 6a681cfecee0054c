#include "launch.hpp"

#include <algorithm>

#include "error.hpp"
#include "memory.hpp"
#include "program.hpp"
#include "stream.hpp"

namespace opencl {

namespace {

cw_status set_arguments(const cw_function_t& f, const cw_code_arg* args, uint32_t n) {
  const Device& device = *f.program->device;
  cl_uint at = 0;
  for (uint32_t i = 0; i < n; ++i) {
    cl_int error = CL_SUCCESS;
    if (args[i].bytes) {
      error = cl.clSetKernelArg(f.kernel, at++, args[i].bytes, args[i].v.value);
    } else if (device.memory != Memory::buffer) {
      error = cl.clSetKernelArgSVMPointer(f.kernel, at++, args[i].v.address);
    } else {
      Place place;
      if (args[i].v.address) {
        if (cw_status status = find_place(device, args[i].v.address, 0, &place)) return status;
      }
      error = cl.clSetKernelArg(f.kernel, at++, sizeof(cl_mem), place.buffer ? &place.buffer : nullptr);
      if (error == CL_SUCCESS) error = cl.clSetKernelArg(f.kernel, at++, sizeof(place.offset), &place.offset);
    }
    if (error != CL_SUCCESS) {
      return fail(CW_INVALID, "argument %u of kernel %s is refused (%s)", i, f.name.c_str(), error_name(error));
    }
  }
  return CW_OK;
}

// `after`: an event to wait for, or NULL.
cw_status put(cw_function_t& f, cl_command_queue queue, const size_t global[3], const size_t local[3],
              const cw_code_arg* args, uint32_t n, const cl_event* after, cl_event* event) {
  std::lock_guard<std::mutex> lock(f.mutex);
  if (cw_status status = set_arguments(f, args, n)) return status;
  const cl_int error =
      cl.clEnqueueNDRangeKernel(queue, f.kernel, 3, nullptr, global, local, after ? 1 : 0, after, event);
  if (error == CL_INVALID_WORK_GROUP_SIZE || error == CL_INVALID_WORK_ITEM_SIZE) {
    return fail(CW_INVALID, "kernel %s cannot run in groups of %zu x %zu x %zu items", f.name.c_str(), local[0],
                local[1], local[2]);
  }
  if (error == CL_SUCCESS && f.accepted.empty()) {
    f.accepted.resize(n);
    for (uint32_t i = 0; i < n; ++i) f.accepted[i] = args[i].bytes;
    std::copy(local, local + 3, f.accepted_group);
  }
  return check(error, "clEnqueueNDRangeKernel");
}

// Whether the runtime took a launch like this one before: one that is held back must not be refused later.
bool is_accepted(cw_function_t& f, const uint32_t group[3], const cw_code_arg* args, uint32_t n) {
  std::lock_guard<std::mutex> lock(f.mutex);
  return f.accepted.size() == n && std::equal(group, group + 3, f.accepted_group) &&
         std::equal(f.accepted.begin(), f.accepted.end(), args,
                    [](uint32_t bytes, const cw_code_arg& arg) { return bytes == arg.bytes; });
}

bool may_be_held(const Device& device, const uint32_t grid[3]) {
  return device.holds_launches && grid[0] == 1 && grid[1] == 1 && grid[2] == 1 && !profiling();
}

}  // namespace

cw_status launch(cw_function f, const uint32_t grid[3], const uint32_t group[3], const cw_code_arg* args, uint32_t n,
                 cw_stream handle) {
  if (!f) return fail(CW_INVALID, "launch: there is no function");
  Device& device = *f->program->device;
  cl_uint wanted = 0;
  for (uint32_t i = 0; i < n; ++i) wanted += !args[i].bytes && device.memory == Memory::buffer ? 2 : 1;
  if (wanted != f->parameters) {
    return fail(CW_INVALID, "kernel %s has %u parameters, and %u were given", f->name.c_str(), f->parameters, wanted);
  }
  size_t global[3], local[3];
  for (int d = 0; d < 3; ++d) {
    if (grid[d] == 0) return CW_OK;
    local[d] = group[d];
    global[d] = size_t{grid[d]} * group[d];
  }
  cw_stream_t* stream = nullptr;
  if (cw_status status = find_stream("launch", device, handle, &stream)) return status;
  if (may_be_held(device, grid) && is_accepted(*f, group, args, n)) {
    std::lock_guard<std::mutex> lock(stream->mutex);
    stream->held.add(f, group, args, n);
    if (stream->held.full()) stream->held.put(*stream);
    return CW_OK;
  }
  return stream->enqueue(f->name.c_str(), [&](cl_command_queue queue, cl_event* event) {
    return put(*f, queue, global, local, args, n, nullptr, event);
  });
}

void HeldLaunches::add(cw_function f, const uint32_t group[3], const cw_code_arg* args, uint32_t n) {
  HeldLaunch& h = held_[count_++];
  h.function = f;
  std::copy(group, group + 3, h.group);
  h.args.assign(args, args + n);
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; ++i) bytes += (args[i].bytes + 7) / 8 * 8;
  h.values.resize(bytes);
  char* at = h.values.data();
  for (cw_code_arg& arg : h.args) {
    if (!arg.bytes) continue;
    arg.v.value = std::copy_n(static_cast<const char*>(arg.v.value), arg.bytes, at) - arg.bytes;
    at += (arg.bytes + 7) / 8 * 8;
  }
}

void HeldLaunches::put(cw_stream_t& stream) {
  // The first waits for an event of ours. Else a runtime's thread would take each as it comes, and the two would stand
  // in each other's way at the queue's locks.
  cl_event gate = count_ > 1 ? cl.clCreateUserEvent(context(), nullptr) : nullptr;
  for (size_t i = 0; i < count_; ++i) {
    HeldLaunch& h = held_[i];
    cl_event event = nullptr;
    const cw_status status =
        opencl::put(*h.function, stream.queue, h.group, h.group, h.args.data(), static_cast<uint32_t>(h.args.size()),
                    gate && i == 0 ? &gate : nullptr, &event);
    if (status == CW_OK)
      stream.follow(event);
    else
      stream.note_failure(status);
  }
  count_ = 0;
  if (!gate) return;
  cl.clSetUserEventStatus(gate, CL_COMPLETE);
  cl.clReleaseEvent(gate);
}

}  // namespace opencl
