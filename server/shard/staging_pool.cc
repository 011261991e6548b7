#include "server/shard/staging_pool.h"

#include <algorithm>
#include <utility>

namespace lodestar {

class StagingPool::Request {
 public:
  Request(bool in_turn, Granted granted) : in_turn(in_turn), granted(std::move(granted)) {}

  bool in_turn;  // guarded by the pool's lock
  const Granted granted;
};

StagingSlot::StagingSlot(std::shared_ptr<StagingPool> pool, std::shared_ptr<Page> page)
    : pool_(std::move(pool)), page_(std::move(page)) {}

StagingSlot::~StagingSlot() { pool_->GiveBack(*this, std::move(page_)); }

void StagingSlot::Revoke() {
  is_revoked_.store(true, std::memory_order_relaxed);
  pool_->GiveBack(*this, nullptr);
}

StagingPool::StagingPool(int64_t slot_elements, int num_slots, std::shared_ptr<PagePool> pages)
    : slot_elements_(slot_elements), num_slots_(std::max(num_slots, 2)), pages_(std::move(pages)) {}

bool StagingPool::HasSlotFor(bool in_turn) const {
  return num_slots_ - num_used_ >= (in_turn ? 1 : 2);
}

std::shared_ptr<StagingSlot> StagingPool::TryTake(bool in_turn) {
  if (!HasSlotFor(in_turn)) return nullptr;
  std::shared_ptr<Page> page = pages_->Allocate(slot_elements_);
  if (page == nullptr) return nullptr;
  ++num_used_;
  return std::make_shared<StagingSlot>(shared_from_this(), std::move(page));
}

StagingPool::Acquired StagingPool::Acquire(bool in_turn, Granted granted) {
  absl::MutexLock lock(&mutex_);
  if (auto slot = TryTake(in_turn); slot != nullptr) {
    return {.slot = std::move(slot), .request = nullptr};
  }
  queue_.push_back(std::make_shared<Request>(in_turn, std::move(granted)));
  return {.slot = nullptr, .request = queue_.back()};
}

std::shared_ptr<StagingSlot> StagingPool::Promote(const std::shared_ptr<Request>& request) {
  absl::MutexLock lock(&mutex_);
  request->in_turn = true;
  const auto position = std::find(queue_.begin(), queue_.end(), request);
  if (position == queue_.end()) return nullptr;
  std::shared_ptr<StagingSlot> slot = TryTake(true);
  if (slot != nullptr) queue_.erase(position);
  return slot;
}

bool StagingPool::Remove(const std::shared_ptr<Request>& request) {
  absl::MutexLock lock(&mutex_);
  const auto position = std::find(queue_.begin(), queue_.end(), request);
  if (position == queue_.end()) return false;
  queue_.erase(position);
  return true;
}

void StagingPool::GiveBack(StagingSlot& given, std::shared_ptr<Page> page) {
  std::shared_ptr<Request> next;
  std::shared_ptr<StagingSlot> slot;
  {
    absl::MutexLock lock(&mutex_);
    page.reset();
    if (!std::exchange(given.has_place_, false)) return;
    --num_used_;
    for (auto waiting = queue_.begin(); waiting != queue_.end(); ++waiting) {
      slot = TryTake((*waiting)->in_turn);
      if (slot == nullptr) continue;
      next = *waiting;
      queue_.erase(waiting);
      break;
    }
  }
  if (next != nullptr) next->granted(std::move(slot));
}

int StagingPool::num_used() const {
  absl::MutexLock lock(&mutex_);
  return num_used_;
}

}  // namespace lodestar
