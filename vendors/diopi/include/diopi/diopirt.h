// DIOPI's types, numbers and call-backs: what a library of its functions and its host have between them. Declared from the
// public names and signatures of DIOPI 1.0; the comments are ours.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct {
  const int64_t* data;
  int64_t len;
} diopiSize_t;

typedef enum {
  diopiSuccess = 0,
  diopiErrorOccurred = 1,
  diopiNotInited = 2,
  diopi5DNotSupported = 12,
  diopiNoImplement = 13,
  diopiForceFallbackToCPU = 14,
  diopiDtypeNotSupported = 1000,
} diopiError_t;

typedef enum { diopi_host = 0, diopi_device = 1 } diopiDevice_t;
typedef int8_t diopiDeviceIndex_t;

typedef enum {
  diopi_dtype_int8 = 0,
  diopi_dtype_uint8 = 1,
  diopi_dtype_int16 = 2,
  diopi_dtype_uint16 = 3,
  diopi_dtype_int32 = 4,
  diopi_dtype_uint32 = 5,
  diopi_dtype_int64 = 6,
  diopi_dtype_uint64 = 7,
  diopi_dtype_float16 = 8,
  diopi_dtype_float32 = 9,
  diopi_dtype_float64 = 10,
  diopi_dtype_bool = 11,
  diopi_dtype_bfloat16 = 12,
  diopi_dtype_tfloat32 = 13,
  diopi_dtype_complex32 = 14,
  diopi_dtype_complex64 = 15,
  diopi_dtype_complex128 = 16,
  diopi_dtype_unsupported = 255,
} diopiDtype_t;

typedef struct {
  diopiDtype_t stype;  // says which of the two it is
  union {
    double fval;
    int64_t ival;
  };
} diopiScalar_t;

typedef enum { ReductionNone, ReductionMean, ReductionSum } diopiReduction_t;
typedef enum { RoundModeNone, RoundModeTrunc, RoundModeFloor } diopiRoundMode_t;

typedef struct diopiContext* diopiContextHandle_t;
typedef struct diopiTensor* diopiTensorHandle_t;
typedef const struct diopiTensor* diopiConstTensorHandle_t;
typedef struct diopiGenerator* diopiGeneratorHandle_t;
typedef const struct diopiGenerator* diopiConstGeneratorHandle_t;
typedef void* diopiStreamHandle_t;

// What the host answers, 27 functions.
const char* diopiGetVersion();

diopiError_t diopiGetTensorData(diopiTensorHandle_t, void**);
diopiError_t diopiGetTensorDataConst(diopiConstTensorHandle_t, const void**);
diopiError_t diopiGetTensorShape(diopiConstTensorHandle_t, diopiSize_t*);
diopiError_t diopiGetTensorStride(diopiConstTensorHandle_t, diopiSize_t*);
diopiError_t diopiGetTensorDtype(diopiConstTensorHandle_t, diopiDtype_t*);
diopiError_t diopiGetTensorDevice(diopiConstTensorHandle_t, diopiDevice_t*);
diopiError_t diopiGetTensorNumel(diopiConstTensorHandle_t, int64_t*);
diopiError_t diopiGetTensorElemSize(diopiConstTensorHandle_t, int64_t*);
diopiError_t diopiGetTensorStoragePtr(diopiConstTensorHandle_t, void**);
diopiError_t diopiGetTensorStorageOffset(diopiConstTensorHandle_t, int64_t*);
diopiError_t diopiGetTensorStorageNbytes(diopiConstTensorHandle_t, size_t*);
diopiError_t diopiGetTensorDeviceIndex(diopiConstTensorHandle_t, diopiDeviceIndex_t*);
diopiError_t diopiGetTensorCrowIndices(diopiConstTensorHandle_t, diopiConstTensorHandle_t*);
diopiError_t diopiGetTensorColIndices(diopiConstTensorHandle_t, diopiConstTensorHandle_t*);
diopiError_t diopiGetTensorValues(diopiConstTensorHandle_t, diopiConstTensorHandle_t*);
diopiError_t diopiIsTensorSparse(diopiConstTensorHandle_t, bool*);
diopiError_t diopiGetCurrentDeviceIndex(diopiDeviceIndex_t*);

// A stream and memory for one call; what is required lives as long as the call's context.
diopiError_t diopiGetStream(diopiContextHandle_t, diopiStreamHandle_t*);
diopiError_t diopiRequireTensor(diopiContextHandle_t, diopiTensorHandle_t*, const diopiSize_t* size,
                                const diopiSize_t* stride, const diopiDtype_t, const diopiDevice_t);
diopiError_t diopiRequireBuffer(diopiContextHandle_t, diopiTensorHandle_t*, int64_t bytes, diopiDevice_t);

diopiError_t diopiGeneratorGetState(diopiContextHandle_t, diopiConstGeneratorHandle_t, diopiTensorHandle_t*);
diopiError_t diopiGeneratorSetState(diopiGeneratorHandle_t, diopiConstTensorHandle_t);
diopiError_t diopiGeneratorGetSeedAndOffset(diopiGeneratorHandle_t, uint64_t* seed, uint64_t* offset);
diopiError_t diopiGeneratorSetSeedAndOffset(diopiGeneratorHandle_t, uint64_t seed, uint64_t offset);

diopiError_t diopiRecordStart(const char* name, void** record);
diopiError_t diopiRecordEnd(void** record);

}  // extern "C"
