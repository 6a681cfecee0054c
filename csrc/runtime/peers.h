// Whether two devices exchange data without the host: what the vendor's `peer_access` says, asked once for each pair.
#pragma once

namespace causeway {

enum class Peers { No, Yes, NotKnown };

// Of two different devices. NotKnown where the vendor offers no such entry: then its mem_copy takes every pair.
Peers peers(int device, int peer);

}  // namespace causeway
