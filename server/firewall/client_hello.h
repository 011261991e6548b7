// SPDX-License-Identifier: Apache-2.0

// Checks whether the first message of a TLS client offers TLS 1.3. gRPC 1.51 accepts older
// versions, and has no setting against it. It does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lodestar::firewall {

// Maximum number of bytes that ClassifyClientHello() looks at. Even messages with post-quantum keys
// are shorter than 2 KiB.
inline constexpr size_t kMaxClientHelloBytes = 16 << 10;

enum class ClientHello : uint8_t {
  kIncomplete,  // more bytes are needed
  kOffersTls13,
  kOlder,      // speaks TLS 1.2 at most
  kMalformed,  // no ClientHello, or a ClientHello that is too long
};

// Returns what kind of ClientHello a client has sent. `bytes` are all bytes that have come on the
// connection. The first two are those of a TLS handshake (first_bytes.h).
ClientHello ClassifyClientHello(absl::string_view bytes);

}  // namespace lodestar::firewall
