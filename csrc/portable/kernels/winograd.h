// Convolutions of 3 x 3 places, one after the other, by fewer multiplications than a product has: Winograd's F(2 x 2, 3 x 3).
#pragma once

#include "portable/call.h"

namespace causeway::portable {

struct Windows {
  int64_t batch, channels, results;  // channels of the image and of the result
  int64_t height, width;  // of the image
  int64_t down, across;  // of the result
  int64_t y, x;  // where the first window begins: -padding
  bool turned;  // weights are [channels, results, 3, 3], and their taps go backwards
};

// Whether it is taken: by the sizes and the device alone, as its sums round otherwise than those of a product.
bool winograd_pays(const Device& device, Dtype dtype, const Windows& windows);

cw_status winograd(KernelCall& call, const Windows& windows, const void* out, const void* in, const void* weight,
                   const void* bias, const Epilogue* epilogue = nullptr);

}  // namespace causeway::portable
