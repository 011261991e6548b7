// SPDX-License-Identifier: Apache-2.0

// ClusterRpc serves ClusterService (proto/cluster_service.proto) with the coordinator: it converts
// requests, calls the coordinator and converts answers. It delays the answer to NextGrant until
// there is a grant, and to Register while the servers load. It never blocks a gRPC thread.
#pragma once

#include <atomic>
#include <memory>

#include "common/job/job_spec.h"
#include "common/messages/call_log.h"
#include "common/runtime/clock.h"
#include "proto/cluster_service.grpc.pb.h"
#include "server/limits/origin_places.h"
#include "server/limits/refusal_counts.h"
#include "server/rpc/call_trace.h"
#include "server/rpc/commanded_shards.h"
#include "server/rpc/coordinator_strand.h"
#include "server/rpc/held_connections.h"
#include "server/rpc/late_refusal.h"
#include "server/status/status_board.h"

namespace lodestar::rpc {

class ClusterRpc final
    : public v1::ClusterService::WithRawCallbackMethod_Register<
          v1::ClusterService::WithCallbackMethod_Join<
              v1::ClusterService::WithCallbackMethod_Heartbeat<
                  v1::ClusterService::WithCallbackMethod_StayConnected<
                      v1::ClusterService::WithCallbackMethod_NextGrant<
                          v1::ClusterService::WithCallbackMethod_Leave<
                              v1::ClusterService::WithCallbackMethod_AttachShard<
                                  v1::ClusterService::WithCallbackMethod_ReportShard<
                                      v1::ClusterService::Service>>>>>>>> {
 public:
  // The pointers are not owned, and their objects must outlive the gRPC server.
  struct Deps {
    CoordinatorStrand* strand = nullptr;
    CommandedShards* shards = nullptr;
    status::StatusBoard* board = nullptr;
    std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
    absl::Duration refusal_pause = kRefusalPause;
    // Returns true if the connection from this grpc::ServerContext::peer() is open. Thread-safe.
    std::function<bool(const std::string& peer)> is_open = [](const std::string&) { return true; };
    // Holds the calls of StayConnected. Null means that these calls are not held. Must outlive the
    // gRPC server.
    HeldConnections* held_connections = nullptr;
    Clock* clock = &Clock::Real();  // for the log
    // True: the address of shard 0 is only this machine's host name, which other machines may not
    // know. Workers then keep the address that they have used for the registration.
    bool is_address_guessed = false;
  };

  explicit ClusterRpc(const Deps& deps);

  // Begins the stop of the server. From now on new workers and new server processes get
  // Unavailable.
  void BeginDrain() { is_draining_ = true; }

  // Handles a registration. The bytes come from an unknown caller, so they are parsed only after
  // their size was checked.
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request, v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatReply* reply) override;
  grpc::ServerUnaryReactor* StayConnected(grpc::CallbackServerContext* context,
                                          const v1::StayConnectedRequest* request,
                                          v1::StayConnectedReply* reply) override;
  // Returns the key under which the worker's call of NextGrant() waits in the strand.
  static uint64_t KeyOf(const messages::WorkerLife& life) { return life.incarnation.value(); }
  grpc::ServerUnaryReactor* NextGrant(grpc::CallbackServerContext* context,
                                      const v1::GrantRequest* request, v1::Grant* reply) override;
  // Answers a NextGrant() call with extends_round.
  grpc::ServerUnaryReactor* ExtendGrant(grpc::CallbackServerContext* context,
                                        const v1::GrantRequest& request, CallTrace trace,
                                        v1::Grant* reply);
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveReply* reply) override;

  grpc::ServerWriteReactor<v1::ShardCommand>* AttachShard(
      grpc::CallbackServerContext* context, const v1::AttachShardRequest* request) override;
  grpc::ServerUnaryReactor* ReportShard(grpc::CallbackServerContext* context,
                                        const v1::ShardReport* request,
                                        v1::ShardReportReply* reply) override;

 private:
  absl::Status CheckNotDraining() const;
  // Parses a registration, and takes a place for it if it is large. Errors:
  // - ResourceExhausted with RetryAfter: no place is free
  // - InvalidArgument: the registration has too many bytes or tensors
  // - DataLoss: `bytes` are no legal registration
  absl::StatusOr<v1::RegisterRequest> ParseRegistration(const grpc::ByteBuffer& bytes,
                                                        const std::string& origin,
                                                        limits::OriginPlaces::Place& place);
  // Counts the refusal of a registration. Each limit has its own count.
  void CountRefusal(const v1::RegisterRequest& request, const absl::Status& refusal);
  // Checks that the caller may speak for this worker, and adds the worker to `trace`. Errors:
  // PermissionDenied; Unauthenticated; those of Coordinator::CheckCompared() and CheckLife().
  absl::Status CheckSpeaksFor(const grpc::CallbackServerContext& context,
                              const messages::WorkerLife& life, CallTrace& trace) const;
  absl::Status DoAttach(const v1::AttachShardRequest& request,
                        const std::shared_ptr<ShardStream>& stream);
  void OnStreamDone(int shard, uint64_t instance_id, const ShardStream* stream);
  void TakeContributed(const v1::ShardReport& report);
  grpc::ServerUnaryReactor* AwaitLastCheckpoint(grpc::CallbackServerContext* context,
                                                const v1::ShardReport& report,
                                                v1::ShardReportReply* reply);

  const Deps deps_;
  std::atomic<bool> is_draining_ = false;
  limits::OriginPlaces large_registrations_;
  limits::OriginPlaces held_registrations_;
  limits::OriginPlaces held_connections_;
  messages::CallLog calls_;  // log of workers' calls
};

}  // namespace lodestar::rpc
