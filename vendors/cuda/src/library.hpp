// NVIDIA's libraries, opened when they are first needed: none is linked, none has to be there.
#pragma once

#include <string>
#include <vector>

namespace cuda {

// One of CUDA's libraries: where it may lie, best first.
struct Places {
  const char* key;      // of the setting that names the file; "0" there switches it off
  const char* soname;   // "libcublas.so."
  const char* folder;   // of its wheel under nvidia/, for CUDA 12: "cublas"
  std::vector<const char*> versions;
};

// The library, or NULL with the reason in `words`.
void* open_library(const Places& places, std::string* words);

// The folder of the library that a function is of.
std::string folder_of(const void* function);

void* symbol_of(void* library, const char* symbol);  // or NULL

// Fill `*out` with function `symbol`; the first that is missing is named in `missing`, where that is given.
template <class T>
void find_symbol(void* library, const char* symbol, T* out, std::string* missing) {
  *out = reinterpret_cast<T>(symbol_of(library, symbol));
  if (!*out && missing && missing->empty())
    *missing = std::string("it has no ") + symbol + ": another version is needed";
}

// Of CUDA's versions those that the driver is for come first: it takes no code of a later one.
std::vector<const char*> by_driver(const char* later, const char* earlier);

}  // namespace cuda
