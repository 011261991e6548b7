// SPDX-License-Identifier: Apache-2.0

// Http2Guard checks what one client sends on an HTTP/2 connection, frame by frame before gRPC reads
// it. Payloads are skipped, not checked. The class does no I/O: the time is passed in.
//
// gRPC 1.51 accepts two things that cost a server unlimited memory, and far more work than the
// client (CVE-2023-33953, CVE-2023-44487):
// - It keeps a header of any length until the header is complete.
// - It accepts any number of calls that are begun and cut off at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::http2 {

class Http2Guard {
 public:
  // Maximum number of bytes in the headers of one call, as they are sent. If it is exceeded, the
  // connection is ended. gRPC's own limit of 8 KiB refuses only the call, after gRPC has read all
  // of the headers.
  static constexpr size_t kMaxHeaderBytes = 12 << 10;

  // A Pace allows `burst` frames at once, and `per_second` frames after that.
  struct Pace {
    double burst = 0;
    double per_second = 0;
  };
  // The limits are far above what workers need. Workers send resets too: a worker cuts off a few
  // calls if a round goes on without it.
  struct Config {
    Pace calls = {.burst = 10'000, .per_second = 5'000};
    Pace resets = {.burst = 50, .per_second = 10};
    Pace settings = {.burst = 100, .per_second = 10};
    Pace pings = {.burst = 200, .per_second = 50};
  };

  Http2Guard() : Http2Guard(Config()) {}
  explicit Http2Guard(const Config& config);

  // Checks the bytes that the client has sent. They must be passed from the first byte on, in
  // pieces of any size. Returns false if the connection must not be read any further.
  bool Allows(absl::string_view bytes, absl::Time now);

 private:
  // An Allowance counts the frames that a Pace still allows.
  struct Allowance {
    explicit Allowance(const Pace& the_pace) : pace(the_pace), left(the_pace.burst) {}
    bool Take(absl::Time now);

    const Pace pace;
    double left;
    absl::Time as_of = absl::InfinitePast();
  };

  bool OnFrame(absl::Time now);

  bool is_broken_ = false;
  size_t preface_bytes_ = 0;  // bytes of the preface that have come
  size_t bytes_to_skip_ = 0;  // rest of a payload
  size_t header_size_ = 0;    // bytes of the next frame's header that have come
  uint8_t header_[9] = {};
  size_t header_bytes_ = 0;  // bytes of one call's headers so far
  Allowance calls_;
  Allowance resets_;
  Allowance settings_;
  Allowance pings_;
};

}  // namespace lodestar::http2
