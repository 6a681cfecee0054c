// The devices of one OpenCL platform: which one, what each can do, and what is known of it while it works.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "api.hpp"
#include "causeway/abi.h"

namespace opencl {

extern cw_host host;  // what the core gave us

// How device memory is had, from the best to what every device offers.
enum class Memory {
  fine,    // shared virtual memory that the host reads and writes while no kernel does
  coarse,  // shared virtual memory: a pointer of the device, which the host may not follow
  buffer,  // cl_mem objects behind addresses that are reserved and never mapped
};

struct Device {
  int32_t index = 0;
  cl_device_id id = nullptr;
  Memory memory = Memory::buffer;
  bool holds_launches = false;  // launch.hpp
  uint64_t total = 0;    // bytes
  uint64_t largest = 0;  // bytes of one allocation
  std::atomic<uint64_t> used{0};
  std::once_flag asked;
  bool measures = false;  // after `asked`; profile.hpp
  std::mutex mutex;  // of what follows
  std::vector<cw_stream_t*> streams;
  std::atomic<cw_stream_t*> default_stream{nullptr};
};

// What the runtime says of a device in words; "" where it says nothing.
std::string device_text(cl_device_id device, cl_device_info what);

// One context for all devices of the platform, so that they can copy from each other.
cl_context context();

cw_status device_count(int32_t* out);
cw_status device_info(int32_t index, cw_device_info* out);
cw_status device_attribute(int32_t index, const char* key, cw_arg* out);

// The device of an entry's argument, or the words for a number that is none. Opens the platform.
cw_status find_device(const char* entry, int32_t index, Device** out);
// All devices, those found so far: none before the platform was opened.
std::vector<Device*> devices();

}  // namespace opencl
