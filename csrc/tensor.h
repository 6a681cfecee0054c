// The tensor operators that are the device's own: making, viewing, copying and resizing.
#pragma once

#include <vector>

#include <c10/core/StorageImpl.h>

namespace causeway {

// Names of the operators registered in tensor.cpp, "aten::copy_".
const std::vector<const char*>& own_kernels();

// Give `storage` room for `bytes`, keeping what fits. Throws where the storage is not resizable.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

}  // namespace causeway
