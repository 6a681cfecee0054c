// A dry run: the ladder decides and counts as ever, outputs get their shapes, and nothing large is computed.
//
// What was computed all the same is known: what came from the host, and what small operators made of that, so that
// positions, masks and the like are right. Everything else is unknown. A program that asks for an unknown number, or
// whose shapes depend on one, cannot be run dry: it gets an error, and `needed_contents` says what it asked for.
// The memory of a device that is run dry must be host memory; see paper.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace causeway {

extern std::atomic<bool> g_dry;
inline bool is_dry() { return g_dry.load(std::memory_order_relaxed); }

// Bytes [begin, end) whose content is known or not.
bool any_unknown(const void* begin, const void* end);
void set_unknown(const void* begin, const void* end, bool unknown);

bool is_unknown(const at::Tensor& device_tensor);
void set_unknown(const at::Tensor& device_tensor, bool unknown);

// Throws where a dry run cannot go on without the contents of `t`.
void need_contents(const at::Tensor& t, const char* what);
[[noreturn]] void refuse_dry(const std::string& what);
std::string needed_contents();  // what was asked for first; "" if nothing was

// Elements of an operator's tensors together, up to which it is computed if its inputs are known.
extern std::atomic<int64_t> g_small;

}  // namespace causeway
