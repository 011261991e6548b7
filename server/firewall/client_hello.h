// SPDX-License-Identifier: Apache-2.0

// Finds out whether a TLS client offers TLS 1.3 in its first message. The check is needed because
// gRPC 1.51 accepts older versions and has no setting against that. Does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lodestar::firewall {

// Maximum number of bytes that ClassifyClientHello() reads. Real messages are shorter than 2 KiB,
// even with post-quantum keys.
inline constexpr size_t kMaxClientHelloBytes = 16 << 10;

enum class ClientHello : uint8_t {
  kIncomplete,  // more bytes are needed
  kOffersTls13,
  kOlder,      // speaks TLS 1.2 at most
  kMalformed,  // no ClientHello, or a ClientHello that is too long
};

// Returns the kind of ClientHello that `bytes` begin with. `bytes` must be all bytes received on
// the connection, and must begin with the two bytes of a TLS handshake (first_bytes.h).
ClientHello ClassifyClientHello(absl::string_view bytes);

}  // namespace lodestar::firewall
