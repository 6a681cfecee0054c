// The tensor operators that are the device's own: making, viewing, copying and resizing.
#pragma once

#include <c10/core/StorageImpl.h>

namespace causeway {

// Give `storage` room for `bytes`, keeping what fits. Throws where the storage is not resizable.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

}  // namespace causeway
