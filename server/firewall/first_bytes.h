// The first bytes of a connection say which kind of client is there. A client that a port of gRPC
// is of no use to is answered in its own protocol. The functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar::firewall {

// The most that ClassifyFirstBytes() looks at.
inline constexpr size_t kMaxFirstBytes = 24;
// The first bytes of a connection that asks to be let into the cluster.
inline constexpr absl::string_view kEnrollmentWord = "LODESTAR";

enum class FirstBytes : uint8_t {
  kIncomplete,  // more of them may say it
  kTls,
  kHttp2,  // without TLS
  kEnrollment,
  kHttp1,  // a browser, or a tool such as curl
  kOther,
};

// `bytes` are as many as have come, from the first on. Without any, the answer is kIncomplete.
// Three are enough for HTTP/2, two for TLS.
FirstBytes ClassifyFirstBytes(absl::string_view bytes);

// The answer to a request of HTTP/1: 400, with a text for people.
std::string Http1Refusal();

enum class TlsAlert : uint8_t {
  kProtocolVersion = 70,  // this port does not speak it
  kInternalError = 80,    // not now
};

// The record that ends a TLS handshake.
std::string TlsRefusal(TlsAlert alert);

}  // namespace lodestar::firewall
