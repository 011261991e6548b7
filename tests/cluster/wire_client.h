// SPDX-License-Identifier: Apache-2.0

// A worker that speaks the wire through the generated stubs only, like a client in another
// language. It shares no code with worker/. Calls block for at most kCallDeadline each.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/cluster_service.grpc.pb.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/status_service.grpc.pb.h"

namespace lodestar {

class WireClient {
 public:
  static constexpr absl::Duration kCallDeadline = absl::Seconds(20);

  WireClient(const std::string& coordinator, const std::string& name, uint64_t instance_id);

  // Registers, and tries again while the cluster is not ready. `layout` is for the model `client`.
  absl::Status Register(const v1::Layout& layout);
  // Tries to register once.
  absl::Status TryRegister(const v1::Layout& layout);
  // Supplies initial weights if the server wants them, and then joins without a data set.
  absl::Status SupplyAndJoin(const std::vector<float>& weights);
  absl::Status Join();

  // Makes one call. The server answers WAIT after `hold`. GrantRequest explains `ahead`.
  absl::StatusOr<v1::Grant> AskForGrant(const std::optional<v1::RoundReport>& report,
                                        absl::Duration hold, bool ahead = false);
  // Asks until the answer is not WAIT.
  absl::StatusOr<v1::Grant> NextGrant(const std::optional<v1::RoundReport>& report);

  // These push and pull all buckets. Elements are in the order of the parameter space. Push() adds
  // up the replies of all servers.
  absl::StatusOr<v1::PushReply> Push(v1::ContributionKind kind, int64_t round, int64_t base_version,
                                     const std::vector<float>& elements);
  absl::StatusOr<std::vector<float>> Pull(int64_t min_round);
  absl::Status Heartbeat();
  absl::Status Leave(const std::optional<v1::RoundReport>& report = std::nullopt,
                     const std::string& reason = "the test is over");

  const v1::RegisterReply& registration() const { return registration_; }
  void set_incarnation(uint64_t incarnation) { registration_.set_incarnation(incarnation); }

 private:
  // Sets the deadline, and the secret that shows that the incarnation belongs to this client.
  void Prepare(grpc::ClientContext& context) const;
  absl::Status PushToServer(const v1::ServerAddress& server, const v1::PushChunk& prototype,
                            const std::vector<float>& elements, v1::PushReply* total);
  absl::Status PullFromServer(const v1::ServerAddress& server, int64_t min_round,
                              std::vector<float>* elements);
  v1::ParameterService::Stub* StubOf(const v1::ServerAddress& server);

  const std::string coordinator_;
  const std::string name_;
  const uint64_t instance_id_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
  std::vector<std::unique_ptr<v1::ParameterService::Stub>> parameters_;  // indexed by shard
  v1::RegisterReply registration_;
};

// Returns a layout of tensors "tensor0", "tensor1", ... with these lengths, one block each.
v1::Layout FlatLayout(const std::vector<int64_t>& lengths);

// Returns the report of a worker that has done the round of `grant`.
v1::RoundReport ReportOf(const v1::Grant& grant);

// Returns the status that an operator sees.
absl::StatusOr<v1::ClusterStatus> FetchStatus(const std::string& server);

}  // namespace lodestar
