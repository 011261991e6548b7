// SPDX-License-Identifier: Apache-2.0

// Runs one parameter server without a coordinator: a ParameterShard behind ParameterService on a
// free loopback port. Tests do the coordinator's part by calling shard().
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/job/job_spec.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/runtime/executor.h"
#include "proto/transport_security.h"
#include "server/firewall/connection_acceptor.h"
#include "server/limits/refusal_counts.h"
#include "server/rpc/parameter_rpc.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/testing/in_process_norms.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/bulk_transport.h"

namespace lodestar {

class ShardServer {
 public:
  struct Config {
    job::JobSpec job;
    params::Layout layout;  // one shard has the whole layout
    int64_t staging_bytes = 64 << 20;
    int num_threads = 2;
    bool shared_memory = true;
    rpc::StreamQuota::Config streams = {};
    wire::TransportSecurity security = {};
    std::string life_key = {};  // see CoordinatorConfig
    absl::Duration refusal_pause = absl::ZeroDuration();
  };

  // Serves with weights from job.seed. Aborts if the config is not valid.
  explicit ShardServer(Config config);
  ~ShardServer();

  shard::ParameterShard& shard() { return *shard_; }
  // Returns the number of owners of the shard. 1 means that only this server owns it, and no
  // stream.
  int64_t num_shard_owners() const { return shard_.use_count(); }
  // Makes the service refuse all calls from now on: Unavailable with this text.
  void Detach(const std::string& text) ABSL_LOCKS_EXCLUDED(mutex_);
  rpc::ParameterRpc& rpc() const { return *rpc_; }
  const limits::RefusalCounts& refusals() const { return *refusals_; }

  const std::string& address() const { return address_; }
  const std::vector<params::Bucket>& buckets() const { return buckets_; }
  const params::Layout& layout() const { return config_.layout; }
  std::shared_ptr<grpc::Channel> Channel() const;
  // Returns the config for the transport of a worker in incarnation 1.
  client::BulkGrpcTransportConfig TransportConfig(WorkerId worker) const;
  std::unique_ptr<client::ParameterTransport> Transport(WorkerId worker) const;

  // Makes workers 1..num_workers members in incarnation 1 with `num_samples` each, and opens their
  // round.
  void OpenRound(Round round, int num_workers, double learning_rate, int64_t num_samples = 1);

 private:
  const Config config_;
  std::vector<params::Bucket> buckets_;
  std::unique_ptr<ThreadPool> executor_;
  shard::InProcessNorms norms_{1};
  std::shared_ptr<shard::ParameterShard> shard_;
  absl::Mutex mutex_;
  absl::Status detached_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<limits::RefusalCounts> refusals_ =
      std::make_shared<limits::RefusalCounts>();
  std::unique_ptr<rpc::ParameterRpc> rpc_;
  std::unique_ptr<firewall::ConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace lodestar
