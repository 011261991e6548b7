// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/replica.h"

#include <limits>
#include <random>
#include <utility>

#include "common/runtime/check.h"
#include "server/durability/replica/testing/direct_connection.h"

namespace lodestar::simulation {
namespace {

constexpr absl::Duration kLongestStart = absl::Seconds(3);

}  // namespace

SimulatedReplica::SimulatedReplica(World* world, const std::string& journal_dir,
                                   const std::string& checkpoint_dir, uint64_t seed)
    : world_(world),
      chance_(seed),
      folders_(journal_dir, checkpoint_dir),
      disk_(std::make_unique<SimulatedFileSystem>()) {
  Start();
}

void SimulatedReplica::Start() {
  ++num_starts_;
  disk_->SetFaultHook([this](FileOperation, const std::string&) { return OnFileOperation(); });
  replica::ReplicaStore::Deps deps;
  deps.disk = disk_.get();
  deps.clock = world_;
  store_ = std::make_shared<replica::ReplicaStore>(folders_, std::move(deps));
  const absl::Status opened = store_->Open();
  if (opened.ok()) return world_->Tell("the replica starts");
  world_->Tell("the replica cannot start: ", opened.message());
  Crash(/*with_machine=*/false, kLongestStart);
}

std::unique_ptr<replica::ReplicaConnection> SimulatedReplica::Connect(
    std::function<bool()> is_of_the_dead) {
  return std::make_unique<replica::DirectConnection>(
      store_, [this, is_of_the_dead = std::move(is_of_the_dead)] {
        if (is_of_the_dead()) return absl::UnavailableError("the process has ended");
        return OnCall();
      });
}

bool SimulatedReplica::HasWhole(int shard) const {
  return store_ != nullptr && store_->HasWhole(shard);
}

bool SimulatedReplica::IsKnownToBeEmpty(int shard) const {
  return lost_.count(shard) > 0 && !HasWhole(shard);
}

void SimulatedReplica::Crash(bool with_machine, absl::Duration time) {
  world_->Tell(with_machine ? "the replica loses power" : "the replica ends");
  store_ = nullptr;
  operations_until_crash_ = -1;
  if (with_machine) {
    std::mt19937_64 chance(chance_());
    disk_->Crash(chance);
  }
  world_->After(time, [this, starts = num_starts_] {
    if (store_ == nullptr && num_starts_ == starts) Start();
  });
}

void SimulatedReplica::LoseDisk(int num_shards) {
  world_->Tell("the replica loses its disk");
  store_ = nullptr;
  disk_ = std::make_unique<SimulatedFileSystem>();
  for (int shard = 0; shard < num_shards; ++shard) lost_.insert(shard);
  Start();
}

void SimulatedReplica::Cut(absl::Duration time) {
  world_->Tell("nobody reaches the replica for ", absl::FormatDuration(time));
  cut_until_ = world_->Now() + time;
}

void SimulatedReplica::FillDisk(absl::Duration time) {
  world_->Tell("the replica's disk is full");
  disk_->SetCapacity(0);
  world_->After(time, [this] { disk_->SetCapacity(std::numeric_limits<int64_t>::max()); });
}

void SimulatedReplica::Mend() {
  cut_until_ = absl::InfinitePast();
  calls_until_cut_ = -1;
  operations_until_crash_ = -1;
  disk_->SetCapacity(std::numeric_limits<int64_t>::max());
  if (store_ == nullptr) Start();
}

absl::Status SimulatedReplica::OnCall() {
  if (world_->Now() < cut_until_) return absl::UnavailableError("no answer");
  if (calls_until_cut_ >= 0 && calls_until_cut_-- == 0) return absl::UnavailableError("cut");
  return absl::OkStatus();
}

absl::Status SimulatedReplica::OnFileOperation() {
  if (operations_until_crash_ < 0 || operations_until_crash_-- != 0) return absl::OkStatus();
  world_->After(absl::ZeroDuration(), [this] {
    if (store_ != nullptr) {
      Crash(/*with_machine=*/true, chance_.Between(absl::ZeroDuration(), kLongestStart));
    }
  });
  return absl::UnavailableError("the replica's machine loses power");
}

}  // namespace lodestar::simulation
