// SPDX-License-Identifier: Apache-2.0

// PathMeter measures the speed of the path between a worker and its servers from the last
// transfers. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::client {

class PathMeter {
 public:
  // Minimum size of a transfer that is measured, in bytes. Fewer bytes are sent without waiting for
  // an acknowledgement, so they do not show the speed of the path.
  static constexpr uint64_t kLeastBytes = 65536;

  // Adds a push. All its bytes must be acknowledged. `bytes` is the number of bytes on the wire.
  // `sending` is the time during which some bytes were not acknowledged. The meter subtracts
  // `round_trip` from it, because the last acknowledgement takes that long.
  void OnSent(uint64_t bytes, absl::Duration sending, absl::Duration round_trip)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Adds one pull. `bytes` is the payload after the first chunk, and `took` the time from the first
  // to the last chunk.
  void OnReceived(uint64_t bytes, absl::Duration took) ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the highest rates of the last transfers. A slower transfer may have waited for
  // something other than the path.
  messages::PathFacts facts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The rates of the last transfers in one direction, in bytes per second.
  class Rates {
   public:
    void Add(uint64_t bytes, absl::Duration took);
    double Highest() const;

   private:
    static constexpr size_t kRemembered = 8;
    std::array<double, kRemembered> rates_ = {};
    size_t next_ = 0;
  };

  mutable absl::Mutex mutex_;
  Rates up_ ABSL_GUARDED_BY(mutex_);
  Rates down_ ABSL_GUARDED_BY(mutex_);
  absl::Duration round_trip_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::client
