// The maker's libraries, opened when they are first needed: none is linked, none has to be there.
#pragma once

#include <string>
#include <vector>

#include "driver.hpp"

namespace cuda {

// The first of these that opens, or NULL with the reason in `words`. "0" in the setting switches it off.
void* open_library(const kin::Places& places, std::string* words);

// The file that a function is of, its folder, and this vendor's own folder.
std::string file_of_function(const void* function);
std::string folder_of(const void* function);
std::string own_folder();
// The file of an open library.
std::string file_of(void* library);

void* symbol_of(void* library, const char* symbol);  // or NULL

// Fill `*out` with function `symbol`; the first that is missing is named in `missing`, where that is given.
template <class T>
void find_symbol(void* library, const char* symbol, T* out, std::string* missing) {
  *out = reinterpret_cast<T>(symbol_of(library, symbol));
  if (!*out && missing && missing->empty())
    *missing = std::string("it has no ") + symbol + ": another version is needed";
}

// These files as the loader finds them, then in each of these folders; an empty folder is left out.
std::vector<std::string> files_in(const std::vector<std::string>& files, const std::vector<std::string>& folders);
std::string environment(const char* name);  // "" where it is not set

}  // namespace cuda
