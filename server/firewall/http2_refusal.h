// SPDX-License-Identifier: Apache-2.0

// Http2Refusal is a minimal HTTP/2 server that tells a gRPC client why it is refused: each call on
// the connection fails with the same status. A GOAWAY frame alone is not enough for two reasons:
// - gRPC 1.51 does not pass its text to the caller.
// - After an early GOAWAY, the client connects again without a pause.
//
// Does no I/O: the client's bytes go in, the answers come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::firewall {

class Http2Refusal {
 public:
  // HTTP/2 code in the GOAWAY frame that ends the connection.
  enum class GoAwayCode : uint32_t {
    kNoError = 0x0,
    kEnhanceYourCalm = 0xb,
    kInadequateSecurity = 0xc,
  };

  // `status` must not be OK, and its text must be printable ASCII.
  Http2Refusal(absl::Status status, GoAwayCode code) : status_(std::move(status)), code_(code) {}

  // Must be called with all bytes from the client, in order, in blocks of any size. Returns the
  // bytes that must be sent to the client.
  std::string OnBytes(absl::string_view bytes);
  // Returns the GOAWAY frame, which must be sent last.
  std::string GoAway() const;

  // Returns true if the client has sent something other than HTTP/2, or too many bytes. The
  // connection must then be closed.
  bool is_broken() const { return is_broken_; }
  int num_calls() const { return num_calls_; }  // number of calls that were refused

 private:
  void OnFrame(std::string& answer);

  const absl::Status status_;
  const GoAwayCode code_;
  bool is_broken_ = false;
  bool has_greeted_ = false;
  size_t bytes_taken_ = 0;
  size_t bytes_to_skip_ = 24;  // bytes left of the preface, later of a frame's payload
  std::string header_;         // the bytes of the next frame's header so far
  uint32_t last_stream_ = 0;
  int num_calls_ = 0;
};

}  // namespace lodestar::firewall
