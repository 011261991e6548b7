// SPDX-License-Identifier: Apache-2.0

// WorkerConnection holds which process a worker is, and the address that it calls from. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/messages/cluster_messages.h"

namespace lodestar::membership {

class WorkerConnection {
 public:
  // The state that outlives the coordinator's process.
  struct Memory {
    uint64_t instance_id = 0;  // ID of the worker's process
    std::string device;
    std::string identity;      // name in the worker's certificate. Empty means that it has none.
    uint64_t map_version = 0;  // version of the map in the answer to its registration
    std::string frozen_hash = {};  // frozen_hash of its RegisterCall
    // See Registration::index. Not set means that an earlier release of the server began this life.
    std::optional<uint32_t> index = {};
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkerConnection() = default;
  explicit WorkerConnection(Memory memory) : memory_(std::move(memory)) {}
  const Memory& memory() const { return memory_; }

  // Begins a life of the worker. Returns true if the previous life was of the same process.
  bool BeginLife(const messages::RegisterCall& call) {
    const bool is_same_process = IsProcess(call.instance_id);
    *this = WorkerConnection({.instance_id = call.instance_id,
                              .device = call.device,
                              .identity = call.identity,
                              .frozen_hash = call.frozen_hash});
    peer_ = call.peer;
    return is_same_process;
  }
  void GiveIndex(uint32_t index) { memory_.index = index; }
  // Records what the answer to a registration said.
  void OnRegistered(const std::string& peer, uint64_t map_version) {
    peer_ = peer;
    memory_.map_version = map_version;
  }
  void OnHeardFrom(const std::string& peer) { peer_ = peer; }
  void OnHeartbeat(const messages::HeartbeatCall& call) { path_ = call.path; }

  bool IsProcess(uint64_t instance_id) const { return memory_.instance_id == instance_id; }
  const std::string& identity() const { return memory_.identity; }
  // Returns true if the worker has the present map of the servers, or can take it from the answer
  // to this heartbeat.
  bool Follows(const messages::HeartbeatCall& call, uint64_t map_version) const {
    return call.map_version.has_value() || memory_.map_version == map_version;
  }
  // Returns the address of the worker's last call. Empty means that the worker has not called since
  // the coordinator's process began.
  const std::string& peer() const { return peer_; }
  // Returns the facts about the network path from the last heartbeat. All are zero if this life has
  // sent no heartbeat.
  const messages::PathFacts& path() const { return path_; }

 private:
  Memory memory_;
  std::string peer_;
  messages::PathFacts path_;
};

}  // namespace lodestar::membership
