// Kernels whose text a graph compiler writes, several in one program: the same dialect, parameters and launches as those
// that are written by hand.
#pragma once

#include <string>
#include <vector>

#include "portable/device.h"
#include "portable/source.h"

namespace causeway::portable {

struct KernelText {
  enum Kind : uint8_t { In, Out, Value, Tells };
  struct Parameter {
    Kind kind;
    std::string type, name;  // of the memory's elements, or of the value
  };
  std::string name;  // of the function
  std::vector<Parameter> parameters;
  std::string body;
};

// Declares its parameters.
void add_parameters(Source& source, const KernelText& kernel);

// The functions that `text` calls, and `before`, which has more of them.
std::string functions_before(const std::string& text, const std::string& before);

// The whole program: what a kernel of the language begins with, `before`, and each kernel.
std::string compiled_source(const cw_code_info& info, const std::string& before,
                            const std::vector<KernelText>& kernels);

// Built by the device's compiler; a function for each kernel, in their order. The program lives as long as the process.
cw_status build_compiled(const Device& device, const std::string& source, const std::vector<KernelText>& kernels,
                         std::vector<cw_function>* out);

}  // namespace causeway::portable
