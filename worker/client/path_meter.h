// PathMeter: how fast the path between a worker and its servers is, by the transfers of late.
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/cluster_messages.h"

namespace lodestar {

class PathMeter {
 public:
  // Less says nothing: it fits into what is sent without waiting for an answer.
  static constexpr uint64_t kLeastBytes = 65536;

  // One push, all of it acknowledged: bytes on the wire, the time in which some were on their way,
  // and the path's round trip, of which the last acknowledgement takes one.
  void OnSent(uint64_t bytes, absl::Duration sending, absl::Duration round_trip)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // One pull: bytes of payload behind the first chunk, and the time after it in which they came.
  void OnReceived(uint64_t bytes, absl::Duration took) ABSL_LOCKS_EXCLUDED(mutex_);

  // The highest rates of the last transfers: what else holds one up is not the path's.
  PathFacts facts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Of the last transfers one way, in bytes per second.
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

}  // namespace lodestar
