// CallWatchdog: ends bulk calls that have come to a standstill: see CallWatch. Owns the thread that
// looks at them and asks their servers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/client/call_watch.h"

namespace lodestar {

// A call under way. Called on the watchdog's thread.
class WatchedCall {
 public:
  virtual ~WatchedCall() = default;
  virtual OwnCall Look() = 0;
  // Makes it end soon, with `status`.
  virtual void End(const absl::Status& status) = 0;
};

// Thread-safe. Destroyed on a thread that is not gRPC's.
class CallWatchdog {
 public:
  // The channel that a stream uses now.
  using ChannelOf = std::function<std::shared_ptr<grpc::Channel>(int stream)>;
  // A call of this stream stands still: those to come take another connection. What is returned
  // ends the old one; it is called once the call has been told why.
  using OnStandstill = std::function<std::function<void()>(int stream)>;

  // Of calls on a path of which nothing is known yet: how long they may be quiet, and their chunks.
  CallWatchdog(absl::Duration patience, size_t chunk_bytes, ChannelOf channel_of,
               OnStandstill on_standstill);
  ~CallWatchdog();

  // A number for a call's metadata, unlike that of any other.
  uint64_t NewNumber() ABSL_LOCKS_EXCLUDED(mutex_);
  // How large the chunks of the next call are to be.
  size_t ChunkBytes(int stream, bool is_push) ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on the call is watched, until it is gone or Forget().
  void Watch(uint64_t number, int stream, const std::shared_ptr<WatchedCall>& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The call is over; `status` is its own.
  void Forget(uint64_t number, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream on which nothing has moved for longest, and since when, if a call stood still there.
  std::optional<std::pair<int, absl::Duration>> Standstill() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    uint64_t number = 0;
    int stream = 0;
    std::weak_ptr<WatchedCall> call;
    Pace* pace = nullptr;  // that learns from it
    bool has_small_chunks = false;
    CallWatch watch;
  };
  // What became of some calls of one stream. At most one of a stream is under way.
  struct Question;

  Pace& PaceOf(int stream, bool is_push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Looks at every call, ends those that stand still, and asks about others.
  void LookAtAll() ABSL_LOCKS_EXCLUDED(mutex_);
  void AskLocked(int stream, const std::vector<uint64_t>& numbers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeAnswer(Question* question, bool ok) ABSL_LOCKS_EXCLUDED(mutex_);

  const absl::Duration least_patience_;
  const size_t chunk_bytes_;
  const ChannelOf channel_of_;
  const OnStandstill on_standstill_;
  Clock& clock_ = Clock::Real();
  grpc::CompletionQueue answers_;

  absl::Mutex mutex_;
  // By stream and whether it is of pushes: a path may be slow in one direction only.
  std::map<std::pair<int, bool>, Pace> paces_ ABSL_GUARDED_BY(mutex_);
  StillPaths still_ ABSL_GUARDED_BY(mutex_);  // by stream
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Question>> questions_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lodestar
