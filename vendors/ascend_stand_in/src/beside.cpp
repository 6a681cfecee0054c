// What a program links against and this chip does not have: it says so, or does nothing where nothing is asked.
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <time.h>

#include "core.hpp"

using namespace stand_in;

#define REFUSED(name)                                                        \
  ENTRY Code name() {                                                        \
    CALL();                                                                  \
    return refuse(kUnsupported, "%s: the stand-in does not have it", #name); \
  }

// Virtual memory, memory between processes by handle, kernels by their addresses.
REFUSED(aclrtMallocPhysical)
REFUSED(aclrtFreePhysical)
REFUSED(aclrtMapMem)
REFUSED(aclrtUnmapMem)
REFUSED(aclrtReserveMemAddress)
REFUSED(aclrtReleaseMemAddress)
REFUSED(aclrtMemExportToShareableHandle)
REFUSED(aclrtMemImportFromShareableHandle)
REFUSED(aclrtMemSetPidToShareableHandle)
REFUSED(aclrtGetFunctionAddr)
REFUSED(rtDevBinaryRegister)
REFUSED(rtFunctionRegister)
REFUSED(rtGetC2cCtrlAddr)
REFUSED(rtKernelLaunch)
REFUSED(aclmdlInitDump)
REFUSED(aclmdlSetDump)
REFUSED(aclmdlFinalizeDump)

// The older way of calling operators by name and description. A description can be made, no operator runs by it.
namespace {
struct Description {
  int dtype, format;
  int64_t dims[8];
  int count;
};
}  // namespace

ENTRY void* aclCreateTensorDesc(int dtype, int count, const int64_t* dims, int format) {
  CALL_ONLY();
  auto* made = new Description{dtype, format, {}, count < 8 ? count : 8};
  for (int i = 0; i < made->count; ++i) made->dims[i] = dims[i];
  return made;
}
ENTRY void aclDestroyTensorDesc(const void* made) {
  CALL_ONLY();
  delete static_cast<const Description*>(made);
}
ENTRY int aclGetTensorDescType(const void* made) { return static_cast<const Description*>(made)->dtype; }
ENTRY int aclGetTensorDescFormat(const void* made) { return static_cast<const Description*>(made)->format; }
ENTRY size_t aclGetTensorDescNumDims(const void* made) { return size_t(static_cast<const Description*>(made)->count); }
ENTRY Code aclGetTensorDescDimV2(const void* made, size_t at, int64_t* size) {
  *size = static_cast<const Description*>(made)->dims[at];
  return kGood;
}
ENTRY void aclSetTensorDescName(void*, const char*) {}
ENTRY Code aclSetTensorFormat(void*, int) { return kGood; }
ENTRY Code aclSetTensorShape(void*, int, const int64_t*) { return kGood; }
ENTRY Code aclSetTensorPlaceMent(void*, int) { return kGood; }

ENTRY void* aclCreateDataBuffer(void* data, size_t size) { return new std::pair<void*, size_t>(data, size); }
ENTRY Code aclDestroyDataBuffer(const void* buffer) {
  delete static_cast<const std::pair<void*, size_t>*>(buffer);
  return kGood;
}

ENTRY void* aclopCreateAttr() { return new char; }
ENTRY void aclopDestroyAttr(const void* attributes) { delete static_cast<const char*>(attributes); }
#define ATTRIBUTE(name) \
  ENTRY Code name() { return kGood; }
ATTRIBUTE(aclopSetAttrBool)
ATTRIBUTE(aclopSetAttrDataType)
ATTRIBUTE(aclopSetAttrFloat)
ATTRIBUTE(aclopSetAttrInt)
ATTRIBUTE(aclopSetAttrString)
ATTRIBUTE(aclopSetAttrListBool)
ATTRIBUTE(aclopSetAttrListFloat)
ATTRIBUTE(aclopSetAttrListInt)
ATTRIBUTE(aclopSetAttrListListInt)

static Code refuse_operator(const char* name) {
  return refuse(kOldOperators, "operator %s: the stand-in has operators by aclnn alone", name ? name : "");
}
ENTRY Code aclopCompileAndExecute(const char* name) {
  CALL();
  return refuse_operator(name);
}
ENTRY Code aclopCompileAndExecuteV2(const char* name) {
  CALL();
  return refuse_operator(name);
}
ENTRY Code aclopStartDumpArgs(uint32_t, const char*) {
  return refuse(kUnsupported, "aclopStartDumpArgs: the stand-in does not have it");
}
ENTRY Code aclopStopDumpArgs(uint32_t) {
  return refuse(kUnsupported, "aclopStopDumpArgs: the stand-in does not have it");
}

// Options of the compiler of those operators: kept, of no effect.
static std::string options[32];
static const char* option_of(int option) {
  // ACL_OP_JIT_COMPILE: chips of the A2 generation and later have their operators ready.
  return option == 10 && options[option].empty() ? "disable" : options[option].c_str();
}
ENTRY Code aclSetCompileopt(int option, const char* value) {
  CALL();
  if (option < 0 || option >= 32 || !value)
    return refuse(kBadParameter, "aclSetCompileopt: there is no option %d", option);
  options[option] = value;
  return kGood;
}
ENTRY size_t aclGetCompileoptSize(int option) {
  CALL_ONLY();
  return option < 0 || option >= 32 ? 0 : strlen(option_of(option)) + 1;
}
ENTRY Code aclGetCompileopt(int option, char* value, size_t length) {
  CALL();
  if (option < 0 || option >= 32 || !length)
    return refuse(kBadParameter, "aclGetCompileopt: there is no option %d", option);
  snprintf(value, length, "%s", option_of(option));
  return kGood;
}

// Attributes of the toolkit: 0 infinities and NaN, 1 bfloat16, 2 operators compiled at run time.
ENTRY Code aclGetCannAttribute(int attribute, int32_t* value) {
  CALL();
  if (attribute < 0 || attribute > 2)
    return refuse(kBadParameter, "aclGetCannAttribute: there is no attribute %d", attribute);
  *value = attribute != 2;
  return kGood;
}
ENTRY Code aclGetCannAttributeList(const int** list, size_t* count) {
  CALL();
  static const int all[] = {0, 1};
  *list = all;
  *count = 2;
  return kGood;
}

// Profiling: nothing is measured; the program's own marks are taken and dropped.
ENTRY Code MsprofRegisterCallback(uint32_t, void*) { return kGood; }
ENTRY Code MsprofReportApi(uint32_t, const void*) { return kGood; }
ENTRY Code MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return kGood; }
ENTRY Code MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return kGood; }
ENTRY uint64_t MsprofGetHashId(const char* text, size_t length) {
  return std::hash<std::string>()(std::string(text, length));
}
ENTRY uint64_t MsprofSysCycleTime() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

// ASCEND_STAND_IN_LOG=1 shows what the program logs from that level on: 0 debug, 1 info, 2 warning, 3 error.
ENTRY void aclAppLog(int level, const char*, const char* file, uint32_t line, const char* format, ...) {
  static long from = number("LOG", 4);
  if (level < from) return;
  char buffer[2048];
  va_list values;
  va_start(values, format);
  vsnprintf(buffer, sizeof buffer, format, values);
  va_end(values);
  fprintf(stderr, "[ascend log %d] %s:%u %s\n", level, file ? file : "", line, buffer);
}
