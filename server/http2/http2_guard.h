// Http2Guard watches what one client sends on a connection of HTTP/2, frame by frame before gRPC
// reads it. gRPC 1.51 keeps a header of any length until it is whole, and takes as many calls as
// are begun and cut off at once (CVE-2023-33953, CVE-2023-44487). Both cost a server memory without
// end and many times the client's work. Payloads are skipped, not looked at. The class is pure:
// time is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::http2 {

class Http2Guard {
 public:
  // The headers of one call may have so many bytes, as they are sent. gRPC takes 8 KiB, and refuses
  // that call alone once it has read all of them.
  static constexpr size_t kMaxHeaderBytes = 12 << 10;

  // A number at once, and so many in a second after that.
  struct Pace {
    double burst = 0;
    double per_second = 0;
  };
  // Far above what workers do: they cut off a few calls when a round goes on without them.
  struct Config {
    Pace calls = {.burst = 10'000, .per_second = 5'000};
    Pace resets = {.burst = 50, .per_second = 10};
    Pace settings = {.burst = 100, .per_second = 10};
    Pace pings = {.burst = 200, .per_second = 50};
  };

  Http2Guard() : Http2Guard(Config()) {}
  explicit Http2Guard(const Config& config);

  // Takes what the client has sent, from its first byte on, in pieces of any size. False means that
  // the connection is not to be read any further, from now on.
  bool Allows(absl::string_view bytes, absl::Time now);

 private:
  // An Allowance is what is left of a pace.
  struct Allowance {
    explicit Allowance(const Pace& the_pace) : pace(the_pace), left(the_pace.burst) {}
    bool Take(absl::Time now);

    const Pace pace;
    double left;
    absl::Time as_of = absl::InfinitePast();
  };

  bool OnFrame(absl::Time now);

  bool is_broken_ = false;
  size_t preface_bytes_ = 0;  // that have come
  size_t bytes_to_skip_ = 0;  // of a payload
  size_t header_size_ = 0;    // of the next frame's header: what has come of it
  uint8_t header_[9] = {};
  size_t header_bytes_ = 0;  // of the headers of one call so far
  Allowance calls_;
  Allowance resets_;
  Allowance settings_;
  Allowance pings_;
};

}  // namespace lodestar::http2
