// PathMeter tells how fast the path between a worker and its servers is, by the last transfers.
// Thread-safe.
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
  // A transfer of fewer bytes says nothing: it fits into what is sent without waiting for an
  // answer.
  static constexpr uint64_t kLeastBytes = 65536;

  // Notes one push, all of which is acknowledged. `bytes` are those on the wire, and `sending` is
  // the time in which some were on their way. The last acknowledgement takes one `round_trip`.
  void OnSent(uint64_t bytes, absl::Duration sending, absl::Duration round_trip)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes one pull. `bytes` are the payload behind the first chunk, and `took` is the time after
  // that chunk in which they came.
  void OnReceived(uint64_t bytes, absl::Duration took) ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the highest rates of the last transfers: a slower transfer may have been held up by
  // something other than the path.
  PathFacts facts() const ABSL_LOCKS_EXCLUDED(mutex_);

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
