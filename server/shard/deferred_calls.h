// Callbacks collected under a lock, to be called after it is released.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace lodestar {

// Declare it before the lock, so that its destructor, which calls, runs after the lock's.
class DeferredCalls {
 public:
  DeferredCalls() = default;
  DeferredCalls(const DeferredCalls&) = delete;
  DeferredCalls& operator=(const DeferredCalls&) = delete;
  ~DeferredCalls() {
    for (std::function<void()>& call : calls_) call();
  }

  bool empty() const { return calls_.empty(); }
  void Add(std::function<void()> call) { calls_.push_back(std::move(call)); }

 private:
  std::vector<std::function<void()>> calls_;
};

}  // namespace lodestar
