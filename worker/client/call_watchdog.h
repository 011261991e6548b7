// CallWatchdog ends bulk calls that have come to a standstill; see CallWatch. It owns the thread
// that looks at the calls and asks their servers.
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

// A call under way. Its functions are called on the watchdog's thread.
class WatchedCall {
 public:
  virtual ~WatchedCall() = default;
  virtual OwnCall Look() = 0;
  // Makes the call end soon, with `status`.
  virtual void End(const absl::Status& status) = 0;
};

// Thread-safe. It must be destroyed on a thread that is not gRPC's.
class CallWatchdog {
 public:
  // Returns the channel that a stream uses now.
  using ChannelOf = std::function<std::shared_ptr<grpc::Channel>(int stream)>;
  // Called if a call of this stream stands still: later calls must take another connection. The
  // returned function ends the old connection. It is called once the call has been told why.
  using OnStandstill = std::function<std::function<void()>(int stream)>;

  // `patience` is how long calls may be quiet at least. `chunk_bytes` is how large their chunks are
  // at most.
  CallWatchdog(absl::Duration patience, size_t chunk_bytes, ChannelOf channel_of,
               OnStandstill on_standstill);
  ~CallWatchdog();

  // Returns a number for a call's metadata, unlike that of any other call.
  uint64_t NewNumber() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns how large the chunks of the next call are to be.
  size_t ChunkBytes(int stream, bool is_push) ABSL_LOCKS_EXCLUDED(mutex_);
  // Watches the call from now on, until the call is gone or Forget() is called.
  void Watch(uint64_t number, int stream, const std::shared_ptr<WatchedCall>& call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells that the call is over. `status` is the call's own.
  void Forget(uint64_t number, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // If a call stood still, returns the stream on which nothing has moved for longest, and for how
  // long.
  std::optional<std::pair<int, absl::Duration>> Standstill() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    uint64_t number = 0;
    int stream = 0;
    std::weak_ptr<WatchedCall> call;
    Pace* pace = nullptr;  // the pace that learns from this call
    bool has_small_chunks = false;
    CallWatch watch;
  };
  // Asks what became of some calls of one stream. At most one question per stream is under way.
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
  // The paces by stream and by whether they are of pushes: a path may be slow in one direction
  // only.
  std::map<std::pair<int, bool>, Pace> paces_ ABSL_GUARDED_BY(mutex_);
  StillPaths still_ ABSL_GUARDED_BY(mutex_);  // by stream
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Question>> questions_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lodestar::client
