// SPDX-License-Identifier: Apache-2.0

// CallWatchdog ends bulk calls that stand still (see CallWatch). It has a thread that looks at the
// calls and asks their servers.
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
#include "common/runtime/clock.h"
#include "worker/client/call_watch.h"

namespace lodestar::client {

// A running call. Its methods are called by the watchdog's thread.
class WatchedCall {
 public:
  virtual ~WatchedCall() = default;
  virtual OwnCall Look() = 0;
  // Makes the call end soon, with `status`.
  virtual void End(const absl::Status& status) = 0;
};

// Watches the bulk calls of one worker. Thread-safe. Must be destroyed on a thread that is not
// gRPC's.
class CallWatchdog {
 public:
  // Returns the channel that a stream uses at present.
  using ChannelOf = std::function<std::shared_ptr<grpc::Channel>(int stream)>;
  // Called when a call of this stream stands still. It must make later calls use another
  // connection, and return a function that ends the old connection. That function is called after
  // WatchedCall::End() of the calls.
  using OnStandstill = std::function<std::function<void()>(int stream)>;

  // Calls may always be quiet for `patience`, or longer on a slow path. `chunk_bytes` is the
  // largest chunk size.
  CallWatchdog(absl::Duration patience, size_t chunk_bytes, ChannelOf channel_of,
               OnStandstill on_standstill);
  ~CallWatchdog();

  // Returns a number that identifies a new call. The caller sends it in the call's metadata.
  uint64_t NewNumber() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the chunk size for the next call.
  size_t ChunkBytes(int stream, bool is_push) ABSL_LOCKS_EXCLUDED(mutex_);
  // Watches the call until it is destroyed or Forget() is called.
  void Watch(uint64_t number, int stream, const std::shared_ptr<WatchedCall>& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called when the call is over. `status` is the status with which the call has ended.
  void Forget(uint64_t number, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the stream that has stood still for longest, and for how long. nullopt means that no
  // stream stands still.
  std::optional<std::pair<int, absl::Duration>> Standstill() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    uint64_t number = 0;
    int stream = 0;
    std::weak_ptr<WatchedCall> call;
    // The pace that is adjusted when this call ends.
    Pace* pace = nullptr;
    bool has_small_chunks = false;
    CallWatch watch;
  };
  // A request that asks a server about some calls of one stream. At most one per stream is open.
  struct Question;

  Pace& PaceOf(int stream, bool is_push) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Looks at every call. Ends those that stand still, and asks about those that are quiet.
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
  // One pace per stream and direction (true means pushes), because a path may be slow in one
  // direction only.
  std::map<std::pair<int, bool>, Pace> paces_ ABSL_GUARDED_BY(mutex_);
  StillPaths still_ ABSL_GUARDED_BY(mutex_);  // The paths are streams.
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Question>> questions_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lodestar::client
