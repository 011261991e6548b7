// SPDX-License-Identifier: Apache-2.0

// Finds out by the first bytes of a connection which kind of client has made it. Also has answers
// for clients that cannot use a gRPC port, each in the client's own protocol. Does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar::firewall {

// Maximum number of bytes that ClassifyFirstBytes() reads.
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

// Returns which kind of client has sent `bytes`, which must be all bytes received on the
// connection. Three bytes are enough for HTTP/2, two for TLS. Returns kIncomplete if there are no
// bytes.
FirstBytes ClassifyFirstBytes(absl::string_view bytes);

// Returns the answer to an HTTP/1 request: 400, with a text for the user.
std::string Http1Refusal();

enum class TlsAlert : uint8_t {
  kProtocolVersion = 70,  // this port does not speak the offered version
  kInternalError = 80,    // the server cannot serve the connection now
};

// Returns a TLS record with a fatal alert. It ends the handshake.
std::string TlsRefusal(TlsAlert alert);

}  // namespace lodestar::firewall
