// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/stream_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar::rpc {

void StreamWatch::Add(std::weak_ptr<WatchedStream> stream) {
  absl::MutexLock lock(&mutex_);
  entries_.push_back({std::move(stream)});
}

int StreamWatch::EndStalled(absl::Time now) {
  std::vector<std::shared_ptr<WatchedStream>> stalled;
  // Holding the streams here makes sure that they are not destroyed under the lock.
  struct Seen {
    std::shared_ptr<WatchedStream> stream;
    absl::Duration awaited;
  };
  std::vector<Seen> seen;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Duration gap = std::clamp(now - looked_at_, absl::ZeroDuration(), kLongestGap);
    looked_at_ = now;
    std::erase_if(entries_, [&](Entry& entry) {
      std::shared_ptr<WatchedStream> stream = entry.stream.lock();
      if (stream == nullptr) return true;
      const uint64_t state = stream->state_.load(std::memory_order_relaxed);
      const bool is_peers_turn = (state & 1) != 0;
      const bool is_same_step = state == entry.state && is_peers_turn;
      entry.waited += gap;
      if (entry.waited == -absl::InfiniteDuration() || state != entry.state) {
        entry.state = state;
        entry.waited = absl::ZeroDuration();
      } else if (is_peers_turn && entry.waited >= patience_) {
        stalled.push_back(std::move(stream));
        return true;
      }
      seen.push_back(
          {std::move(stream), is_same_step ? std::min(gap, kLookInterval) : absl::ZeroDuration()});
      return false;
    });
  }
  for (const Seen& one : seen) one.stream->OnLook(one.awaited);
  for (const std::shared_ptr<WatchedStream>& stream : stalled) {
    stream->EndStalled(absl::UnavailableError(absl::StrCat(
        "nothing has moved on this stream for ", absl::FormatDuration(patience_),
        " (--message_timeout), while the server waited for the worker; open a new stream")));
  }
  return static_cast<int>(stalled.size());
}

size_t StreamWatch::size() const {
  absl::MutexLock lock(&mutex_);
  return entries_.size();
}

}  // namespace lodestar::rpc
