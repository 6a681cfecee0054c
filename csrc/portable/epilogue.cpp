#include "portable/epilogue.h"

#include <algorithm>

#include "portable/portable.h"

namespace causeway::portable {

namespace {

thread_local Epilogue* t_pending = nullptr;

}  // namespace

void Epilogue::declare(Source& s, bool by_rows) const {
  add_parameters(s, text_.kernel);
  s.before(functions_before(text_.row + text_.kernel.body, text_.before));
  std::string row = text_.row, body = text_.kernel.body;
  for (std::string* text : {&row, &body}) std::replace(text->begin(), text->end(), '\n', ' ');
  if (by_rows)
    s.define("FINISH_ROW", row);
  else
    body = row + body;
  s.define("FINISH(at)", "{ const idx AT = (at); " + body + " }");
}

void Epilogue::refuse(const char* operator_name) const {
  if (text_.refused.exchange(true)) return;
  services().log(
      (std::string("the portable kernel of ") + operator_name +
       " does not run together with what follows it in a compiled graph, which is a kernel of its own from now on: " +
       last_error())
          .c_str());
}

PendingEpilogue::PendingEpilogue(Epilogue* epilogue) : before_(t_pending) { t_pending = epilogue; }
PendingEpilogue::~PendingEpilogue() { t_pending = before_; }

Epilogue* PendingEpilogue::of(const char* name) {
  return t_pending && !t_pending->taken && t_pending->name == name ? t_pending : nullptr;
}

}  // namespace causeway::portable
