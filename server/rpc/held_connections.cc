// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/held_connections.h"

#include <utility>
#include <vector>

namespace lodestar::rpc {

class HeldConnections::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(HeldConnections* owner, const messages::WorkerLife& life, std::string peer,
       limits::OriginPlaces::Place place)
      : owner_(owner), life_(life), peer_(std::move(peer)), place_(std::move(place)) {}

  const messages::WorkerLife& life() const { return life_; }
  const std::string& peer() const { return peer_; }

  void OnCancel() override { owner_->OnCancelled(*this); }
  void OnDone() override { delete this; }

 private:
  HeldConnections* const owner_;
  const messages::WorkerLife life_;
  const std::string peer_;
  const limits::OriginPlaces::Place place_;
};

grpc::ServerUnaryReactor* HeldConnections::Hold(const messages::WorkerLife& life, std::string peer,
                                                limits::OriginPlaces::Place place) {
  auto* const call = new Call(this, life, std::move(peer), std::move(place));
  Call* former = nullptr;
  bool is_over = false;
  {
    absl::MutexLock lock(&mutex_);
    is_over = is_over_;
    if (!is_over) former = std::exchange(held_[life.worker], call);
  }
  if (former != nullptr) {
    former->Finish(
        {grpc::StatusCode::CANCELLED, "a newer StayConnected call has replaced this one"});
  }
  if (is_over) call->Finish(grpc::Status::OK);
  return call;
}

void HeldConnections::EndAll() {
  std::map<WorkerId, Call*> ended;
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    ended.swap(held_);
  }
  for (const auto& [worker, call] : ended) call->Finish(grpc::Status::OK);
}

bool HeldConnections::Release(Call& call) {
  absl::MutexLock lock(&mutex_);
  const auto found = held_.find(call.life().worker);
  if (found == held_.end() || found->second != &call) return false;
  held_.erase(found);
  return true;
}

void HeldConnections::OnCancelled(Call& call) {
  if (!Release(call)) return;
  const messages::WorkerLife life = call.life();
  const std::string peer = call.peer();
  // Reads the state before Finish(), because gRPC may then close the socket that shows the state.
  const firewall::ConnectionState state = deps_.state_of(peer);
  call.Finish(grpc::Status::CANCELLED);
  if (state != firewall::ConnectionState::kOpen) deps_.on_ended(life, peer, state);
}

}  // namespace lodestar::rpc
