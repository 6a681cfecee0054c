#include "device.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cores.hpp"
#include "error.hpp"

namespace opencl {

cw_host host = {};

std::string device_text(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (cl.clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  cl.clGetDeviceInfo(device, what, size, text.data(), nullptr);
  text.resize(strlen(text.c_str()));
  return text;
}

namespace {

struct Opened {
  cw_status status = CW_OK;
  std::string words;
  cl_platform_id platform = nullptr;
  cl_context context = nullptr;
  std::vector<std::unique_ptr<Device>> devices;
};

std::atomic<Opened*> opened{nullptr};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string platform_text(cl_platform_id platform, cl_platform_info what) {
  char text[512] = "";
  cl.clGetPlatformInfo(platform, what, sizeof(text) - 1, text, nullptr);
  return text;
}

template <typename T>
T device_value(cl_device_id device, cl_device_info what, T otherwise = {}) {
  T value = otherwise;
  return cl.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

bool has_extension(cl_device_id device, const char* name) {
  return (" " + device_text(device, CL_DEVICE_EXTENSIONS) + " ").find(" " + std::string(name) + " ") !=
         std::string::npos;
}

std::vector<cl_device_id> devices_of(cl_platform_id platform, cl_device_type type) {
  cl_uint count = 0;
  if (cl.clGetDeviceIDs(platform, type, 0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_device_id> ids(count);
  cl.clGetDeviceIDs(platform, type, count, ids.data(), nullptr);
  ids.erase(std::remove_if(ids.begin(), ids.end(),
                           [](cl_device_id id) { return !device_value<cl_bool>(id, CL_DEVICE_AVAILABLE, CL_TRUE); }),
            ids.end());
  return ids;
}

std::string setting(const char* key) {
  const char* text = host.setting ? host.setting(key) : nullptr;
  return text ? text : "";
}

// Its index, or a part of its name; without the setting the first with a GPU, then with an accelerator, then any.
cw_status choose(const std::vector<cl_platform_id>& platforms, cl_platform_id* out) {
  std::string asked = lower(setting("platform"));
  if (asked.empty()) {
    for (cl_device_type type : {cl_device_type{CL_DEVICE_TYPE_GPU}, cl_device_type{CL_DEVICE_TYPE_ACCELERATOR},
                                cl_device_type{CL_DEVICE_TYPE_ALL}}) {
      for (cl_platform_id platform : platforms) {
        if (!devices_of(platform, type).empty()) return *out = platform, CW_OK;
      }
    }
    return *out = platforms[0], CW_OK;
  }
  std::string names;
  for (size_t i = 0; i < platforms.size(); ++i) {
    std::string name = platform_text(platforms[i], CL_PLATFORM_NAME);
    bool by_number = asked == std::to_string(i);
    if (by_number || lower(name).find(asked) != std::string::npos) return *out = platforms[i], CW_OK;
    names += (i ? ", " : "") + std::to_string(i) + " " + name;
  }
  return fail(CW_INVALID, "CAUSEWAY_OPENCL_PLATFORM is '%s': there is no such platform; there are: %s", asked.c_str(),
              names.c_str());
}

cw_status choose_memory(Device& device) {
  auto offered = device_value<cl_device_svm_capabilities>(device.id, CL_DEVICE_SVM_CAPABILITIES);
  bool svm = cl.clSVMAlloc && cl.clSVMFree && cl.clEnqueueSVMMemcpy && cl.clEnqueueSVMMemFill;
  // Fine grain over a bus (a GPU with memory of its own) would put every tensor into the host's memory.
  bool unified = device_value<cl_bool>(device.id, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
  bool fine = svm && (offered & CL_DEVICE_SVM_FINE_GRAIN_BUFFER);
  bool coarse = svm && (offered & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER);
  std::string asked = setting("memory_model");
  if (asked.empty() || asked == "auto") {
    device.memory = fine && unified ? Memory::fine : coarse ? Memory::coarse : Memory::buffer;
    return CW_OK;
  }
  if (asked == "fine" && fine) return device.memory = Memory::fine, CW_OK;
  if (asked == "coarse" && coarse) return device.memory = Memory::coarse, CW_OK;
  if (asked == "buffer") return device.memory = Memory::buffer, CW_OK;
  return fail(CW_INVALID, "CAUSEWAY_OPENCL_MEMORY_MODEL is '%s': device %d offers %s%sbuffer", asked.c_str(),
              device.index, fine ? "fine, " : "", coarse ? "coarse, " : "");
}

// Bytes, with K, M or G: "512M". 0 for a text that is none.
uint64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  uint64_t value = strtoull(text.c_str(), &end, 10);
  int shift = 0;
  switch (std::toupper(static_cast<unsigned char>(*end))) {
    case 'K':
      shift = 10;
      break;
    case 'M':
      shift = 20;
      break;
    case 'G':
      shift = 30;
      break;
    default:
      return *end ? 0 : value;
  }
  return end[1] ? 0 : value << shift;
}

// A setting that is on unless it is 0.
cw_status read_switch(const char* key, const char* name, bool* out) {
  const std::string value = setting(key);
  if (!value.empty() && value != "0" && value != "1")
    return fail(CW_INVALID, "%s is '%s': expected 0 or 1", name, value.c_str());
  *out = value != "0";
  return CW_OK;
}

bool is_cpu(cl_device_id id) { return device_value<cl_device_type>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU; }

cw_status open_platform(Opened& all) {
  bool hold = false, pin = false;
  if (cw_status status = read_switch("hold_launches", "CAUSEWAY_OPENCL_HOLD_LAUNCHES", &hold)) return status;
  if (cw_status status = read_switch("pin_threads", "CAUSEWAY_OPENCL_PIN_THREADS", &pin)) return status;
  const std::vector<int> threads_before = threads();
  if (const char* words = open_loader(); *words) return fail(CW_FAILED, "%s", words);
  cl_uint count = 0;
  cl_int error = cl.clGetPlatformIDs(0, nullptr, &count);
  if (error != CL_SUCCESS || count == 0) {
    return fail(CW_FAILED,
                "OpenCL's loader finds no driver (%s): install one, for a CPU `apt-get install pocl-opencl-icd`; "
                "drivers are listed in /etc/OpenCL/vendors, or in OCL_ICD_VENDORS",
                error_name(error));
  }
  std::vector<cl_platform_id> platforms(count);
  cl.clGetPlatformIDs(count, platforms.data(), nullptr);
  if (cw_status status = choose(platforms, &all.platform)) return status;
  std::vector<cl_device_id> ids = devices_of(all.platform, CL_DEVICE_TYPE_ALL);
  if (ids.empty()) return CW_OK;  // no device is no error
  if (pin && is_cpu(ids[0])) pin_new_threads(threads_before);
  cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(all.platform), 0};
  all.context = cl.clCreateContext(properties, static_cast<cl_uint>(ids.size()), ids.data(), nullptr, nullptr, &error);
  if (cw_status status = check(error, "clCreateContext")) return status;
  for (cl_device_id id : ids) {
    auto device = std::make_unique<Device>();
    device->index = static_cast<int32_t>(all.devices.size());
    device->id = id;
    device->total = device_value<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
    device->largest = device_value<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if (std::string limit = setting("memory"); !limit.empty()) {
      uint64_t bytes = parse_bytes(limit);
      if (bytes == 0) return fail(CW_INVALID, "CAUSEWAY_OPENCL_MEMORY is '%s': expected bytes, as 4G", limit.c_str());
      device->total = std::min(device->total, bytes);
    }
    if (cw_status status = choose_memory(*device)) return status;
    device->holds_launches = hold && device->memory != Memory::buffer && is_cpu(id);
    all.devices.push_back(std::move(device));
  }
  return CW_OK;
}

// A runtime's threads do not survive a fork: who asks it for work in the child waits for ever.
std::atomic<bool> forked{false};

cw_status open(Opened** out) {
  static std::mutex mutex;
  Opened* all = opened.load(std::memory_order_acquire);
  if (!all) {
    std::lock_guard<std::mutex> lock(mutex);
    all = opened.load();
    if (!all) {
      all = new Opened;  // lives as long as the process
      pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
      all->status = open_platform(*all);
      if (all->status != CW_OK) {
        all->words = last_error();
        all->devices.clear();
      }
      opened.store(all, std::memory_order_release);
    }
  }
  *out = all;
  return all->status == CW_OK ? CW_OK : fail(all->status, "%s", all->words.c_str());
}

}  // namespace

cl_context context() { return opened.load(std::memory_order_acquire)->context; }

std::vector<Device*> devices() {
  std::vector<Device*> found;
  if (Opened* all = opened.load(std::memory_order_acquire)) {
    for (auto& device : all->devices) found.push_back(device.get());
  }
  return found;
}

cw_status find_device(const char* entry, int32_t index, Device** out) {
  if (forked.load(std::memory_order_relaxed))
    return fail(
        CW_INVALID,
        "%s: this process was forked when OpenCL had started in its parent, whose threads do not survive a fork. "
        "Start processes by multiprocessing's spawn, or count devices after the fork",
        entry);
  Opened* all = nullptr;
  if (cw_status status = open(&all)) return status;
  auto count = static_cast<int32_t>(all->devices.size());
  if (index < 0 || index >= count) {
    return fail(CW_INVALID, "%s: there is no device %d, there are %d", entry, index, count);
  }
  *out = all->devices[static_cast<size_t>(index)].get();
  return CW_OK;
}

cw_status device_count(int32_t* out) {
  Opened* all = nullptr;
  if (cw_status status = open(&all)) return status;
  *out = static_cast<int32_t>(all->devices.size());
  return CW_OK;
}

cw_status device_info(int32_t index, cw_device_info* out) {
  Device* device = nullptr;
  if (cw_status status = find_device("device_info", index, &device)) return status;
  cw_device_info info = {};
  info.struct_size = out->struct_size;
  info.flags = device->memory == Memory::fine ? CW_HOST_ADDRESSABLE : 0;
  std::string name = device_text(device->id, CL_DEVICE_NAME);
  strncpy(info.name, name.c_str(), sizeof(info.name) - 1);
  info.memory = device->total;
  // Which dtypes it computes is each kernel's to say; bytes of all can be stored.
  info.dtypes = CW_ALL_DTYPES;
  if (!device_value<cl_device_fp_config>(device->id, CL_DEVICE_DOUBLE_FP_CONFIG)) {
    info.dtypes &= ~(CW_FLOAT64 | CW_COMPLEX128);
  }
  info.alignment = std::max<uint32_t>(64, device_value<cl_uint>(device->id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8);
  info.compute_units = device_value<cl_uint>(device->id, CL_DEVICE_MAX_COMPUTE_UNITS);
  int major = 0, minor = 0;
  sscanf(device_text(device->id, CL_DEVICE_VERSION).c_str(), "OpenCL %d.%d", &major, &minor);
  info.capability_major = major;
  info.capability_minor = minor;
#ifdef CL_DEVICE_UUID_KHR
  if (has_extension(device->id, "cl_khr_device_uuid")) {
    cl.clGetDeviceInfo(device->id, CL_DEVICE_UUID_KHR, sizeof(info.uuid), info.uuid, nullptr);
  }
#endif
  memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof(info)));
  return CW_OK;
}

// Of what OpenCL has a name for. Sensors are the makers' own affair.
cw_status device_attribute(int32_t index, const char* key, cw_arg* out) {
  Device* device = nullptr;
  if (cw_status status = find_device("device_attribute", index, &device)) return status;
  const auto is = [&](const char* known) { return strcmp(key, known) == 0; };
  const auto number = [&](uint64_t value) {
    if (!value) return fail(CW_UNSUPPORTED, "%s is not known", key);
    *out = {};
    out->tag = CW_INT;
    out->v.i = static_cast<int64_t>(value);
    return CW_OK;
  };
  const auto words = [&](cl_device_info what) {
    thread_local std::string text;  // until this thread's next call
    text = device_text(device->id, what);
    if (text.empty()) return fail(CW_UNSUPPORTED, "%s is not known", key);
    *out = {};
    out->tag = CW_STRING;
    out->n = static_cast<uint32_t>(text.size());
    out->v.string = text.c_str();
    return CW_OK;
  };
  if (is("driver_version")) return words(CL_DRIVER_VERSION);
  if (is("architecture")) return words(CL_DEVICE_NAME);
  if (is("clock_rate_khz"))
    return number(uint64_t{1000} * device_value<cl_uint>(device->id, CL_DEVICE_MAX_CLOCK_FREQUENCY));
  if (is("l2_cache_bytes")) return number(device_value<cl_ulong>(device->id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE));
  if (is("local_memory_bytes")) return number(device_value<cl_ulong>(device->id, CL_DEVICE_LOCAL_MEM_SIZE));
  if (is("group_limit")) return number(device_value<size_t>(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  if (is("opencl_version")) return words(CL_DEVICE_VERSION);
  return fail(CW_UNSUPPORTED, "%s is not known", key);
}

}  // namespace opencl
