// SPDX-License-Identifier: Apache-2.0

#include "server/shard/staging_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lodestar::shard {

class StagingPool::Request {
 public:
  Request(const sync::Pusher& pusher, bool in_turn, Granted granted)
      : pusher(pusher), in_turn(in_turn), granted(std::move(granted)) {}

  const sync::Pusher pusher;
  bool in_turn;  // guarded by the pool's lock
  const Granted granted;
};

StagingSlot::StagingSlot(std::shared_ptr<StagingPool> pool, const sync::Pusher& pusher,
                         std::shared_ptr<Page> page)
    : pool_(std::move(pool)), pusher_(pusher), page_(std::move(page)) {}

StagingSlot::~StagingSlot() { pool_->GiveBack(*this, std::move(page_)); }

void StagingSlot::Revoke() {
  is_revoked_.store(true, std::memory_order_relaxed);
  pool_->GiveBack(*this, nullptr);
}

StagingPool::StagingPool(int64_t slot_elements, int num_slots, std::shared_ptr<PagePool> pages)
    : slot_elements_(slot_elements),
      num_slots_(std::max(num_slots, 2)),
      most_of_one_(std::max(num_slots_ - 2, 2)),
      pages_(std::move(pages)) {}

int StagingPool::NumOf(const sync::Pusher& pusher) const {
  const auto found = num_of_pusher_.find(pusher);
  return found == num_of_pusher_.end() ? 0 : found->second;
}

bool StagingPool::IsOwedMore(const sync::Pusher& pusher) const {
  absl::MutexLock lock(&mutex_);
  return NumOf(pusher) < most_of_one_;
}

std::shared_ptr<StagingSlot> StagingPool::TryTake(const sync::Pusher& pusher, bool in_turn) {
  if (num_slots_ - num_used_ < (in_turn ? 1 : 2) || NumOf(pusher) >= most_of_one_) return nullptr;
  std::shared_ptr<Page> page = pages_->Allocate(slot_elements_);
  if (page == nullptr) return nullptr;
  ++num_used_;
  ++num_of_pusher_[pusher];
  return std::make_shared<StagingSlot>(shared_from_this(), pusher, std::move(page));
}

StagingPool::Acquired StagingPool::Acquire(const sync::Pusher& pusher, bool in_turn,
                                           Granted granted) {
  absl::MutexLock lock(&mutex_);
  if (auto slot = TryTake(pusher, in_turn); slot != nullptr) {
    return {.slot = std::move(slot), .request = nullptr};
  }
  queue_.push_back(std::make_shared<Request>(pusher, in_turn, std::move(granted)));
  return {.slot = nullptr, .request = queue_.back()};
}

std::shared_ptr<StagingSlot> StagingPool::Promote(const std::shared_ptr<Request>& request) {
  absl::MutexLock lock(&mutex_);
  request->in_turn = true;
  const auto position = std::find(queue_.begin(), queue_.end(), request);
  if (position == queue_.end()) return nullptr;
  std::shared_ptr<StagingSlot> slot = TryTake(request->pusher, true);
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
  std::vector<std::pair<std::shared_ptr<Request>, std::shared_ptr<StagingSlot>>> next;
  {
    absl::MutexLock lock(&mutex_);
    page.reset();
    if (!std::exchange(given.has_place_, false)) return;
    --num_used_;
    const auto of_pusher = num_of_pusher_.find(given.pusher_);
    if (--of_pusher->second == 0) num_of_pusher_.erase(of_pusher);
    // A slot has become free. Usually one request can get it. Two requests get slots if two slots
    // are free and one of the requests is in turn: only such a request may take the last free slot.
    for (auto waiting = queue_.begin(); waiting != queue_.end();) {
      std::shared_ptr<StagingSlot> slot = TryTake((*waiting)->pusher, (*waiting)->in_turn);
      if (slot == nullptr) {
        ++waiting;
        continue;
      }
      next.emplace_back(*waiting, std::move(slot));
      waiting = queue_.erase(waiting);
    }
  }
  for (auto& [request, slot] : next) request->granted(std::move(slot));
}

int StagingPool::num_used() const {
  absl::MutexLock lock(&mutex_);
  return num_used_;
}

}  // namespace lodestar::shard
