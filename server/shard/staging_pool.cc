#include "server/shard/staging_pool.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace lodestar {

class StagingPool::Request {
 public:
  Request(bool in_turn, Granted granted) : in_turn(in_turn), granted(std::move(granted)) {}

  bool in_turn;  // guarded by the pool's lock
  const Granted granted;
};

StagingSlot::StagingSlot(std::shared_ptr<StagingPool> pool, std::shared_ptr<Page> page)
    : pool_(std::move(pool)), page_(std::move(page)) {}

StagingSlot::~StagingSlot() { pool_->GiveBack(std::move(page_)); }

StagingPool::StagingPool(int64_t slot_elements, int num_slots)
    : slot_elements_(slot_elements), num_slots_(std::max(num_slots, 2)) {}

bool StagingPool::HasSlotFor(bool in_turn) const {
  return num_slots_ - num_used_ >= (in_turn ? 1 : 2);
}

std::unique_ptr<StagingSlot> StagingPool::Take() {
  LODESTAR_CHECK(num_used_ < num_slots_) << "num_used=" << num_used_;
  ++num_used_;
  return std::make_unique<StagingSlot>(shared_from_this(), pages_.Allocate(slot_elements_));
}

StagingPool::Acquired StagingPool::Acquire(bool in_turn, Granted granted) {
  absl::MutexLock lock(&mutex_);
  if (HasSlotFor(in_turn)) return {.slot = Take(), .request = nullptr};
  queue_.push_back(std::make_shared<Request>(in_turn, std::move(granted)));
  return {.slot = nullptr, .request = queue_.back()};
}

std::unique_ptr<StagingSlot> StagingPool::Promote(const std::shared_ptr<Request>& request) {
  absl::MutexLock lock(&mutex_);
  request->in_turn = true;
  const auto position = std::find(queue_.begin(), queue_.end(), request);
  if (position == queue_.end() || !HasSlotFor(true)) return nullptr;
  queue_.erase(position);
  return Take();
}

bool StagingPool::Remove(const std::shared_ptr<Request>& request) {
  absl::MutexLock lock(&mutex_);
  const auto position = std::find(queue_.begin(), queue_.end(), request);
  if (position == queue_.end()) return false;
  queue_.erase(position);
  return true;
}

void StagingPool::GiveBack(std::shared_ptr<Page> page) {
  std::shared_ptr<Request> next;
  std::unique_ptr<StagingSlot> slot;
  {
    absl::MutexLock lock(&mutex_);
    page.reset();
    --num_used_;
    const auto position = std::find_if(queue_.begin(), queue_.end(),
                                       [this](const auto& request) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                         return HasSlotFor(request->in_turn);
                                       });
    if (position != queue_.end()) {
      next = *position;
      queue_.erase(position);
      slot = Take();
    }
  }
  if (next != nullptr) next->granted(std::move(slot));
}

int StagingPool::num_used() const {
  absl::MutexLock lock(&mutex_);
  return num_used_;
}

}  // namespace lodestar
