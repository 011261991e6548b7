// A worker that speaks the wire through the generated stubs only, as a client in another language
// would: no code shared with worker/. Calls block, at most kCallDeadline each.
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

  // Tries again while the cluster is not ready. `layout` is for the model `client`.
  absl::Status Register(const v1::Layout& layout);
  // One try.
  absl::Status TryRegister(const v1::Layout& layout);
  // Initial weights if they are wanted, then Join without a data set.
  absl::Status SupplyAndJoin(const std::vector<float>& weights);
  absl::Status Join();

  // One call; WAIT after `hold`. `ahead`: see GrantRequest.
  absl::StatusOr<v1::Grant> AskForGrant(const std::optional<v1::RoundReport>& report,
                                        absl::Duration hold, bool ahead = false);
  // Asks until there is something else than WAIT.
  absl::StatusOr<v1::Grant> NextGrant(const std::optional<v1::RoundReport>& report);

  // All buckets; elements in order of the parameter space. Adds up the replies of all servers.
  absl::StatusOr<v1::PushReply> Push(v1::ContributionKind kind, int64_t round, int64_t base_version,
                                     const std::vector<float>& elements);
  absl::StatusOr<std::vector<float>> Pull(int64_t min_round);
  absl::Status Heartbeat();
  absl::Status Leave(const std::optional<v1::RoundReport>& report = std::nullopt,
                     const std::string& reason = "the test is over");

  const v1::RegisterReply& registration() const { return registration_; }
  void set_incarnation(uint64_t incarnation) { registration_.set_incarnation(incarnation); }

 private:
  // The deadline, and what shows that the life is this client's.
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
  std::vector<std::unique_ptr<v1::ParameterService::Stub>> parameters_;  // by shard
  v1::RegisterReply registration_;
};

// Tensors "tensor0", "tensor1", ... of these lengths, one block each.
v1::Layout FlatLayout(const std::vector<int64_t>& lengths);

// What a worker says that has done its round.
v1::RoundReport ReportOf(const v1::Grant& grant);

// What an operator sees.
absl::StatusOr<v1::ClusterStatus> FetchStatus(const std::string& server);

}  // namespace lodestar
