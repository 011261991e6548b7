// SPDX-License-Identifier: Apache-2.0

// Http2Refusal is a minimal HTTP/2 server that tells a gRPC client why it is refused: every call on
// the connection fails with the same status. A GOAWAY alone is not enough. gRPC 1.51 does not pass
// its text to the caller, and after an early GOAWAY the client connects again without any pause.
// The class does no I/O: bytes go in, bytes come out.
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
  // HTTP/2 code of the GOAWAY at the end.
  enum class GoAwayCode : uint32_t {
    kNoError = 0x0,
    kEnhanceYourCalm = 0xb,
    kInadequateSecurity = 0xc,
  };

  // `status` must not be OK, and its text must be printable ASCII.
  Http2Refusal(absl::Status status, GoAwayCode code) : status_(std::move(status)), code_(code) {}

  // Must be called with the bytes that the client sends, from its first byte on, in pieces of any
  // size. Returns the bytes to send to the client.
  std::string OnBytes(absl::string_view bytes);
  // Returns the last frame to send.
  std::string GoAway() const;

  // Returns true if the bytes are not HTTP/2, or more than a refused client needs.
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
