// The ceiling that the data path is measured against: the same bytes over plain sockets, with the
// same copies on the receiving side.
#pragma once

#include <cstddef>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace lodestar {

// Sends `source` over num_connections loopback connections, in writes of chunk_bytes, to threads
// that read into a buffer of their own and copy to `destination`, which is as long. Returns the
// time from the first byte to the last acknowledgement. Aborts if the machine has no sockets.
absl::Duration SendOverTcp(absl::Span<const char> source, absl::Span<char> destination,
                           int num_connections, size_t chunk_bytes);

}  // namespace lodestar
