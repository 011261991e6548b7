// SPDX-License-Identifier: Apache-2.0

// Finds out which kind of client a connection is from, by its first bytes. If a client cannot use a
// gRPC port, it gets an answer in its own protocol. The functions do no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar::firewall {

// Maximum number of bytes that ClassifyFirstBytes() looks at.
inline constexpr size_t kMaxFirstBytes = 24;
// First bytes of a connection that asks to be let into the cluster.
inline constexpr absl::string_view kEnrollmentWord = "LODESTAR";

enum class FirstBytes : uint8_t {
  kIncomplete,  // more bytes are needed
  kTls,
  kHttp2,  // without TLS
  kEnrollment,
  kHttp1,  // a browser, or a tool such as curl
  kOther,
};

// Returns what kind of client has sent these bytes. `bytes` are all bytes that have come. If there
// are none, the result is kIncomplete. Three bytes are enough for HTTP/2, two for TLS.
FirstBytes ClassifyFirstBytes(absl::string_view bytes);

// Returns the answer to an HTTP/1 request: 400, with a text for the user.
std::string Http1Refusal();

enum class TlsAlert : uint8_t {
  kProtocolVersion = 70,  // this port does not speak the offered version
  kInternalError = 80,    // the server cannot serve the connection now
};

// Returns the record that ends a TLS handshake.
std::string TlsRefusal(TlsAlert alert);

}  // namespace lodestar::firewall
