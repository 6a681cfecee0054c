#include "library.hpp"

#include <dlfcn.h>

#include <mutex>

#include "causeway/library_file.hpp"
#include "error.hpp"

namespace diopi {

cw_host host;

std::string setting(const char* key) {
  const char* text = host.setting ? host.setting(key) : nullptr;
  return text ? text : "";
}

namespace {

struct Opened {
  void* handle = nullptr;
  std::string file, words;  // words: why it cannot be used
};

// A library of operators is linked with nothing that has the call-backs: it finds them among the process's global symbols.
// So this library's become global, which are the call-backs and no other (exports.map).
bool make_callbacks_global() {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(&make_callbacks_global), &info) && info.dli_fname &&
         dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

Opened open_file(const std::string& file, const char* what) {
  Opened opened;
  opened.file = file;
  if (!make_callbacks_global()) {
    opened.words = std::string(what) + " cannot be opened: the call-backs could not be made global symbols";
    return opened;
  }
  const std::string cut = causeway::missing_bytes(file);
  if (cut.empty()) opened.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened.handle) return opened;
  const char* error = cut.empty() ? dlerror() : cut.c_str();
  opened.words = std::string(what) + " cannot be opened: " + (error ? error : "the loader gave no words");
  // Of what a newer DIOPI may ask.
  if (opened.words.find("undefined symbol: diopi") != std::string::npos)
    opened.words += "; it asks its host for a function that is none of the 27 call-backs of DIOPI 1.0";
  return opened;
}

// The one of operators. Kept open as long as the process.
const Opened& operators() {
  static const Opened& opened = *[] {
    const std::string file = setting("library");
    if (file.empty()) {
      auto* none = new Opened;
      none->words =
          "no library of DIOPI's functions is named: give the path of a libdiopi_impl.so in CAUSEWAY_DIOPI_LIBRARY";
      return none;
    }
    auto* made = new Opened(open_file(file, "the library of CAUSEWAY_DIOPI_LIBRARY"));
    // One without operators is not what was meant.
    if (made->handle && !dlsym(made->handle, "diopiAdd") && !dlsym(made->handle, "diopiCopyInp") &&
        !dlsym(made->handle, "diopiGetVendorName"))
      made->words = file + " has none of DIOPI's functions (diopiAdd, diopiCopyInp, diopiGetVendorName)";
    return made;
  }();
  return opened;
}

struct Device {
  DeviceFunctions functions;
  bool is_host = true;
  std::string words, place;
};

template <class T>
void find(void* library, const char* name, T* out, std::string* missing) {
  *out = reinterpret_cast<T>(dlsym(library, name));
  if (!*out && missing) *missing += (missing->empty() ? "" : ", ") + std::string(name);
}

void find_all(void* library, Device& device) {
  std::string missing;
  DeviceFunctions& f = device.functions;
  find(library, "device_malloc", &f.malloc, &missing);
  find(library, "device_free", &f.free, &missing);
  find(library, "device_memcpy_h2d_async", &f.h2d, &missing);
  find(library, "device_memcpy_d2h_async", &f.d2h, &missing);
  find(library, "device_memcpy_d2d_async", &f.d2d, &missing);
  find(library, "device_make_stream", &f.make_stream, &missing);
  find(library, "device_synchronize_stream", &f.sync_stream, &missing);
  find(library, "initLibrary", &f.init, nullptr);
  find(library, "finalizeLibrary", &f.finalize, nullptr);
  if (!missing.empty()) device.words = device.place + " cannot serve as the device: it lacks " + missing;
}

Device* new_device() {
  auto* device = new Device;
  const Opened& library = operators();
  const std::string asked = setting("device");
  if (!library.words.empty()) return device->words = library.words, device;
  void* handle = library.handle;
  device->place = library.file;
  if (!asked.empty() && asked != "host") {
    const Opened opened = open_file(asked, "the library of CAUSEWAY_DIOPI_DEVICE");
    if (!opened.handle) return device->words = opened.words, device;
    handle = opened.handle, device->place = asked;
  } else if (asked == "host" || !dlsym(handle, "device_malloc")) {
    device->place = "the memory of the host";
    return device;
  }
  device->is_host = false;
  find_all(handle, *device);
  if (device->words.empty() && device->functions.init) {
    if (const diopiError_t result = device->functions.init())
      device->words = "initLibrary of " + device->place + " gave " + std::to_string(result);
  }
  return device;
}

const Device& device() {
  static const Device& opened = *new_device();
  return opened;
}

}  // namespace

cw_status open_library() {
  const Opened& library = operators();
  return library.words.empty() ? CW_OK : fail(CW_FAILED, "%s", library.words.c_str());
}

void* find_function(const char* name) {
  const Opened& library = operators();
  return library.words.empty() ? dlsym(library.handle, name) : nullptr;
}

const char* said_last() {
  static const auto words = reinterpret_cast<const char* (*)()>(find_function("diopiGetLastErrorString"));
  return words ? words() : nullptr;
}

cw_status open_device(const DeviceFunctions** out) {
  const Device& opened = device();
  if (!opened.words.empty()) return fail(CW_FAILED, "%s", opened.words.c_str());
  *out = opened.is_host ? nullptr : &opened.functions;
  return CW_OK;
}

std::string words_for_library() {
  const Opened& library = operators();
  if (!library.words.empty()) return library.words;
  std::string text = library.file;
  for (const char* name : {"diopiGetVendorName", "diopiGetImplVersion"})
    if (const auto words = reinterpret_cast<const char* (*)()>(find_function(name)))
      if (const char* said = words()) text += std::string(", ") + said;
  const Device& opened = device();
  return text + "\n" + (opened.words.empty() ? "memory, copies and streams: " + opened.place : opened.words);
}

}  // namespace diopi
