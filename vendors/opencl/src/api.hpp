// OpenCL's functions, found in the loader (libOpenCL.so.1) when the first device is asked for: a machine without it
// can still import the library and is told what is missing.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS  // clCreateCommandQueue, which every runtime has
#include <CL/cl.h>
#include <CL/cl_ext.h>

namespace opencl {

// Those of OpenCL 1.2, which every runtime has.
#define OPENCL_FUNCTIONS(F)       \
  F(clGetPlatformIDs)             \
  F(clGetPlatformInfo)            \
  F(clGetDeviceIDs)               \
  F(clGetDeviceInfo)              \
  F(clCreateContext)              \
  F(clCreateCommandQueue)         \
  F(clReleaseCommandQueue)        \
  F(clCreateBuffer)               \
  F(clReleaseMemObject)           \
  F(clEnqueueReadBuffer)          \
  F(clEnqueueWriteBuffer)         \
  F(clEnqueueCopyBuffer)          \
  F(clEnqueueFillBuffer)          \
  F(clEnqueueMarkerWithWaitList)  \
  F(clEnqueueBarrierWithWaitList) \
  F(clCreateProgramWithSource)    \
  F(clCreateProgramWithBinary)    \
  F(clBuildProgram)               \
  F(clGetProgramInfo)             \
  F(clGetProgramBuildInfo)        \
  F(clReleaseProgram)             \
  F(clCreateKernel)               \
  F(clReleaseKernel)              \
  F(clSetKernelArg)               \
  F(clGetKernelInfo)              \
  F(clEnqueueNDRangeKernel)       \
  F(clFlush)                      \
  F(clFinish)                     \
  F(clWaitForEvents)              \
  F(clCreateUserEvent)            \
  F(clSetUserEventStatus)         \
  F(clGetEventInfo)               \
  F(clGetEventProfilingInfo)      \
  F(clRetainEvent)                \
  F(clReleaseEvent)               \
  F(clSetEventCallback)

// Those of OpenCL 2.0 and 2.1: NULL where the loader has none.
#define OPENCL_2_FUNCTIONS(F) \
  F(clSVMAlloc)               \
  F(clSVMFree)                \
  F(clSetKernelArgSVMPointer) \
  F(clEnqueueSVMMemcpy)       \
  F(clEnqueueSVMMemFill)      \
  F(clCreateProgramWithIL)

struct Api {
#define MEMBER(name) decltype(&::name) name = nullptr;
  OPENCL_FUNCTIONS(MEMBER)
  OPENCL_2_FUNCTIONS(MEMBER)
#undef MEMBER
};

extern Api cl;  // filled by `open_loader`

// Empty when the loader is open, else why it is not and what to do. Once a process.
const char* open_loader();

}  // namespace opencl
