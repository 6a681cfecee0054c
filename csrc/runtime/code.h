// Programs of the user's own for the chip's compiler (code.v1): built from source or from a binary, and launched.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "causeway/abi.h"

namespace causeway {

class Program;

class Function {
 public:
  // A tensor's first element, or bytes by value.
  struct Argument {
    std::optional<at::Tensor> tensor;
    std::string bytes;
  };
  Function(std::shared_ptr<Program> program, std::string name, cw_function function);
  // On the current stream of the program's device. Whether the numbers fit the function is the vendor's to say.
  void launch(const std::vector<uint32_t>& grid, const std::vector<uint32_t>& group,
              const std::vector<Argument>& args) const;
  cw_function handle() const { return function_; }

 private:
  std::shared_ptr<Program> program_;
  std::string name_;
  cw_function function_;
};

class Program : public std::enable_shared_from_this<Program> {
 public:
  // `text` is source, or where `binary` says so what `code_info` has among its binaries.
  Program(int device, const std::string& text, bool binary, const std::string& options);
  ~Program();
  Program(const Program&) = delete;
  Function function(const std::string& name);
  std::string binary() const;
  int device() const { return device_; }

 private:
  int device_;
  cw_program program_ = nullptr;
};

cw_code_info code_info(int device);

}  // namespace causeway
