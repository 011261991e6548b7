// SPDX-License-Identifier: Apache-2.0

// StreamQuota limits how many bulk streams may be open at once, because each takes some 20 kB
// before it has moved any data. Each member may have a few. All callers that are not known as
// members share a bounded number, because they may be any programs.
#pragma once

#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/ids.h"

namespace lodestar::rpc {

// The class is thread-safe.
class StreamQuota : public std::enable_shared_from_this<StreamQuota> {
 public:
  struct Config {
    int per_worker = 64;
    int strangers = 4096;
    int per_stranger = 16;
  };
  enum class Caller { kMember, kStranger };

  // A Seat is the permission for one open stream. It ends when the object is destroyed.
  class Seat {
   public:
    Seat(std::shared_ptr<StreamQuota> quota, WorkerId worker, Caller caller)
        : quota_(std::move(quota)), worker_(worker), caller_(caller) {}
    ~Seat() { quota_->Free(worker_, caller_); }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    bool IsFor(WorkerId worker, Caller caller) const {
      return worker_ == worker && caller_ == caller;
    }

   private:
    const std::shared_ptr<StreamQuota> quota_;
    const WorkerId worker_;
    const Caller caller_;
  };

  explicit StreamQuota(const Config& config) : config_(config) {}

  // Takes a seat. `worker` is 0 while the stream has not named its worker. For such streams only
  // the limit for all strangers counts. Errors: ResourceExhausted.
  absl::StatusOr<std::unique_ptr<Seat>> Take(WorkerId worker, Caller caller)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Count {
    int members = 0;
    int strangers = 0;
  };
  void Free(WorkerId worker, Caller caller) ABSL_LOCKS_EXCLUDED(mutex_);

  const Config config_;
  absl::Mutex mutex_;
  int num_strangers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<WorkerId, Count> of_workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
