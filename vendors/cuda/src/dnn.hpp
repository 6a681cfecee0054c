// cuDNN 9: convolutions and their gradients, as graphs of one operation, whose heuristics know its newest engines; by its
// older descriptors and algorithms where no such engine is allowed. Declared from its documentation; tests/cuda compares
// the declarations with NVIDIA's headers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "causeway/op.hpp"
#include "driver.hpp"

struct cw_stream_t;

namespace cuda {

using DnnHandle = struct cudnnContext*;
using TensorDescriptor = struct cudnnTensorStruct*;
using FilterDescriptor = struct cudnnFilterStruct*;
using ConvolutionDescriptor = struct cudnnConvolutionStruct*;
using GraphDescriptor = void*;  // cudnnBackendDescriptor_t

namespace dnn {

// cudnnStatus_t: thousands are categories.
constexpr int kSuccess = 0, kBadParameter = 2000, kNotSupported = 3000, kInternal = 4000, kNoMemory = 4004;
// cudnnDataType_t
constexpr int kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 9;
// cudnnMathType_t
constexpr int kDefaultMath = 0, kTensorMath = 1, kFmaMath = 3;
// cudnnTensorFormat_t, cudnnConvolutionMode_t, cudnnDeterminism_t
constexpr int kChannelsFirst = 0, kChannelsLast = 1, kCrossCorrelation = 1, kDeterministic = 1;

// cudnnBackendDescriptorType_t
constexpr int kConvolutionIs = 1, kEngine = 2, kEngineConfig = 3, kHeuristics = 4, kPlan = 5, kForwardIs = 10,
              kFilterGradient = 11, kImageGradient = 12, kOperations = 15, kPointers = 16, kTensorIs = 17;
// cudnnBackendAttributeType_t
constexpr int kHandleType = 0, kDataType = 1, kInt64Type = 3, kFloatType = 4, kDoubleType = 5, kPointerType = 6,
              kConvolutionType = 7, kModeType = 8, kNoteType = 11, kDescriptorType = 15;
// cudnnBackendAttributeName_t. An operation's are, from its first one: alpha, beta, convolution, then tensors.
constexpr int kConvolutionCompute = 100, kConvolutionMode = 101, kDilations = 102, kStrides = 103, kPaddingsAfter = 104,
              kPaddingsBefore = 105, kSpatialDims = 106, kHeuristicsMode = 200, kHeuristicsOf = 201,
              kHeuristicsResults = 202, kEngineOfConfig = 300, kPlanHandle = 400, kPlanConfig = 401,
              kPlanWorkspace = 402, kForwardAlpha = 700, kForwardW = 703, kForwardX = 704, kForwardY = 705,
              kImageAlpha = 706, kImageW = 709, kImageDx = 710, kImageDy = 711, kFilterAlpha = 712, kFilterDw = 715,
              kFilterX = 716, kFilterDy = 717, kOperationsHandle = 800, kOperationsOf = 801, kTensorAlignment = 900,
              kTensorType = 901, kTensorShape = 902, kTensorStrides = 903, kTensorId = 906, kPointerIds = 1000,
              kPointersOf = 1001, kPointersWorkspace = 1003, kEngineNotes = 1303;
// cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t
constexpr int kBestFirst = 3, kAnyThatWorks = 2;
constexpr int kOnTensorCores = 0, kConvertsDown = 1, kReducesInHalf = 2, kFourier = 3, kAnyOrder = 4, kWinograd = 5,
              kWinogradLast = 8;

// cudnnConvolutionFwdAlgoPerf_t; those of the gradients have the same members.
struct Found {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math;
  int reserved[3];
};

}  // namespace dnn

// member, the exported symbol, parameters
#define DNN_FUNCTIONS(F)                                                                                               \
  F(create, cudnnCreate, (DnnHandle*))                                                                                 \
  F(destroy, cudnnDestroy, (DnnHandle))                                                                                \
  F(set_stream, cudnnSetStream, (DnnHandle, Stream))                                                                   \
  F(tensor_create, cudnnCreateTensorDescriptor, (TensorDescriptor*))                                                   \
  F(tensor_destroy, cudnnDestroyTensorDescriptor, (TensorDescriptor))                                                  \
  F(tensor_set, cudnnSetTensorNdDescriptor, (TensorDescriptor, int, int, const int*, const int*))                      \
  F(filter_create, cudnnCreateFilterDescriptor, (FilterDescriptor*))                                                   \
  F(filter_destroy, cudnnDestroyFilterDescriptor, (FilterDescriptor))                                                  \
  F(filter_set, cudnnSetFilterNdDescriptor, (FilterDescriptor, int, int, int, const int*))                             \
  F(convolution_create, cudnnCreateConvolutionDescriptor, (ConvolutionDescriptor*))                                    \
  F(convolution_destroy, cudnnDestroyConvolutionDescriptor, (ConvolutionDescriptor))                                   \
  F(convolution_set, cudnnSetConvolutionNdDescriptor,                                                                  \
    (ConvolutionDescriptor, int, const int*, const int*, const int*, int, int))                                        \
  F(convolution_groups, cudnnSetConvolutionGroupCount, (ConvolutionDescriptor, int))                                   \
  F(convolution_math, cudnnSetConvolutionMathType, (ConvolutionDescriptor, int))                                       \
  F(forward_find, cudnnGetConvolutionForwardAlgorithm_v7,                                                              \
    (DnnHandle, TensorDescriptor, FilterDescriptor, ConvolutionDescriptor, TensorDescriptor, int, int*, dnn::Found*))  \
  F(forward_bytes, cudnnGetConvolutionForwardWorkspaceSize,                                                            \
    (DnnHandle, TensorDescriptor, FilterDescriptor, ConvolutionDescriptor, TensorDescriptor, int, size_t*))            \
  F(forward, cudnnConvolutionForward,                                                                                  \
    (DnnHandle, const void*, TensorDescriptor, const void*, FilterDescriptor, const void*, ConvolutionDescriptor, int, \
     void*, size_t, const void*, TensorDescriptor, void*))                                                             \
  F(image_find, cudnnGetConvolutionBackwardDataAlgorithm_v7,                                                           \
    (DnnHandle, FilterDescriptor, TensorDescriptor, ConvolutionDescriptor, TensorDescriptor, int, int*, dnn::Found*))  \
  F(image_bytes, cudnnGetConvolutionBackwardDataWorkspaceSize,                                                         \
    (DnnHandle, FilterDescriptor, TensorDescriptor, ConvolutionDescriptor, TensorDescriptor, int, size_t*))            \
  F(image, cudnnConvolutionBackwardData,                                                                               \
    (DnnHandle, const void*, FilterDescriptor, const void*, TensorDescriptor, const void*, ConvolutionDescriptor, int, \
     void*, size_t, const void*, TensorDescriptor, void*))                                                             \
  F(filter_find, cudnnGetConvolutionBackwardFilterAlgorithm_v7,                                                        \
    (DnnHandle, TensorDescriptor, TensorDescriptor, ConvolutionDescriptor, FilterDescriptor, int, int*, dnn::Found*))  \
  F(filter_bytes, cudnnGetConvolutionBackwardFilterWorkspaceSize,                                                      \
    (DnnHandle, TensorDescriptor, TensorDescriptor, ConvolutionDescriptor, FilterDescriptor, int, size_t*))            \
  F(filter, cudnnConvolutionBackwardFilter,                                                                            \
    (DnnHandle, const void*, TensorDescriptor, const void*, TensorDescriptor, const void*, ConvolutionDescriptor, int, \
     void*, size_t, const void*, FilterDescriptor, void*))                                                             \
  F(bias, cudnnConvolutionBackwardBias,                                                                                \
    (DnnHandle, const void*, TensorDescriptor, const void*, const void*, TensorDescriptor, void*))                     \
  F(add, cudnnAddTensor,                                                                                               \
    (DnnHandle, const void*, TensorDescriptor, const void*, const void*, TensorDescriptor, void*))                     \
  F(transform, cudnnTransformTensor,                                                                                   \
    (DnnHandle, const void*, TensorDescriptor, const void*, const void*, TensorDescriptor, void*))

// Its graphs: descriptors with attributes, each a number, a type and an array.
#define DNN_GRAPHS(F)                                                                     \
  F(make, cudnnBackendCreateDescriptor, (int, GraphDescriptor*))                          \
  F(unmake, cudnnBackendDestroyDescriptor, (GraphDescriptor))                             \
  F(set, cudnnBackendSetAttribute, (GraphDescriptor, int, int, int64_t, const void*))     \
  F(get, cudnnBackendGetAttribute, (GraphDescriptor, int, int, int64_t, int64_t*, void*)) \
  F(finalize, cudnnBackendFinalize, (GraphDescriptor))                                    \
  F(execute, cudnnBackendExecute, (DnnHandle, GraphDescriptor, GraphDescriptor))

struct Dnn {
#define MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  DNN_FUNCTIONS(MEMBER)
  DNN_GRAPHS(MEMBER)
#undef MEMBER
  size_t (*version)() = nullptr;  // cudnnGetVersion
  const char* (*error_text)(int) = nullptr;  // cudnnGetErrorString
};

extern Dnn cudnn;
// Empty when the library is open, else why it is not. Once a process; needs no driver.
const char* open_dnn();
std::string dnn_version();  // "9.10.2", where it is open

// What a stream has of cuDNN: a handle with this stream set, and the algorithms chosen so far.
struct DnnStream {
  // How a graph of one operation is run. NULL: no engine that is allowed takes it.
  struct Plan {
    GraphDescriptor it = nullptr;
    size_t bytes = 0;
  };
  std::map<std::vector<int64_t>, Plan> plans;
  struct Chosen {
    int algorithm = -1;  // -1: it declined
    size_t bytes = 0;  // of workspace
  };
  DnnHandle handle = nullptr;
  std::map<std::vector<int64_t>, Chosen> chosen;
  ~DnnStream();
};

// CW_OK, or the status of `result`: what cuDNN does not support is CW_UNSUPPORTED. What it holds for a mistake of ours is
// declined too, and logged once.
cw_status check_dnn(int result, const char* function);

// The stream's handle, made when first needed. CW_UNSUPPORTED, said once, where cuDNN does not work on the device. The
// stream's library mutex is held.
cw_status dnn_of(cw_stream_t& stream, DnnStream** out);

// The kernel of this name, CW_UNSUPPORTED where cuDNN is not there or has none.
cw_status find_convolution(const char* name, cw_op* out);

}  // namespace cuda
