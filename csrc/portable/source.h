// The dialect: how a kernel's text becomes a function of the chip's language. docs/portable.md describes it.
#pragma once

#include <string>
#include <vector>

#include "portable/device.h"

namespace causeway::portable {

// A kernel's parameters, then its text. Parameters come in the order in which a Launch gives them.
class Source {
 public:
  explicit Source(const cw_code_info& info) : info_(info) {}
  Source& in(const std::string& type, const std::string& name);   // memory that is read
  Source& out(const std::string& type, const std::string& name);  // memory that is written, or read and written
  Source& value(const std::string& type, const std::string& name);
  // Its text has TELL(kind, value, bound) for what it cannot raise.
  Source& tells() { return out("u64", "told_p").value("idx", "teller"); }
  Source& define(const std::string& name, const std::string& text);
  Source& define(const std::string& name, int64_t value) { return define(name, std::to_string(value)); }
  // Text before the kernel: functions of its own.
  Source& before(const std::string& text);
  // A whole program of one kernel, which is called kFunction.
  std::string kernel(const std::string& body) const;
  // The same without what stands before every kernel, and of any name.
  std::string function(const std::string& name, const std::string& body) const;

 private:
  struct Parameter {
    std::string type, name;
    bool pointer;
  };
  const cw_code_info& info_;
  std::vector<Parameter> parameters_;
  std::string head_;
};

// `text` of a .cl, with `body` in place of each of its lines BODY: of a loop, and of what is done in it. A body may have lines
// for the preprocessor, which the text of a #define cannot.
std::string around(const char* text, const std::string& body);

// What stands before every kernel in a language: types, conversions, mathematics.
std::string prelude(const cw_code_info& info);

}  // namespace causeway::portable
