// code.v1: programs built from source or taken from the cache on disk, and their functions. launch.hpp launches them.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "device.hpp"

struct cw_program_t {
  opencl::Device* device = nullptr;
  cl_program program = nullptr;
  std::mutex mutex;
  std::vector<cw_function_t*> functions;
};

struct cw_function_t {
  cw_program_t* program = nullptr;
  std::string name;
  cl_kernel kernel = nullptr;
  cl_uint parameters = 0;
  std::mutex mutex;  // of what follows, and of the cl_kernel: arguments are its own until it is enqueued
  std::vector<uint32_t> accepted;  // bytes of each argument of a launch that the runtime took; empty before the first
  size_t accepted_group[3] = {0, 0, 0};
};

namespace opencl {

extern const cw_code_v1 code_table;

}  // namespace opencl
