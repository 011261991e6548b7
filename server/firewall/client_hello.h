// Whether the first message of a TLS client offers TLS 1.3: gRPC 1.51 takes less than that, and has
// no setting for it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lodestar::firewall {

// The most that ClassifyClientHello() looks at, and a client may take to say it: those with keys
// against quantum computers have less than 2 KiB.
inline constexpr size_t kMaxClientHelloBytes = 16 << 10;

enum class ClientHello : uint8_t {
  kIncomplete,  // more bytes may say it
  kOffersTls13,
  kOlder,      // speaks TLS 1.2 at most
  kMalformed,  // no ClientHello, or one that is too long
};

// `bytes` are as many as have come on the connection, from the first on. The first two are those of
// a TLS handshake (first_bytes.h).
ClientHello ClassifyClientHello(absl::string_view bytes);

}  // namespace lodestar::firewall
