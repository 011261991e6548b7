// SPDX-License-Identifier: Apache-2.0

#include "tests/cluster/shard_server.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "proto/bulk_options.h"
#include "server/rpc/life_secret.h"
#include "server/sync/round_plan.h"

namespace lodestar {

ShardServer::ShardServer(Config config)
    : config_(std::move(config)), executor_(std::make_unique<ThreadPool>(config_.num_threads)) {
  const params::ElementRange all{0, config_.layout.num_elements()};
  absl::StatusOr<std::vector<params::Bucket>> buckets =
      params::PlanBuckets(config_.layout, {all}, config_.job.bucket_bytes);
  LODESTAR_CHECK(buckets.ok()) << buckets.status().ToString();
  buckets_ = *std::move(buckets);

  shard::ParameterShard::Deps deps;
  deps.executor = executor_.get();
  deps.norm_exchange = norms_.ForShard(0);
  shard::ParameterShard::Config shard_config;
  shard_config.range = all;
  shard_config.buckets = buckets_;
  shard_config.layout = config_.layout;
  shard_config.job = config_.job;
  shard_config.staging_bytes = config_.staging_bytes;
  shard_config.life_key = config_.life_key;
  absl::StatusOr<std::unique_ptr<shard::ParameterShard>> shard =
      shard::ParameterShard::Create(std::move(shard_config), std::move(deps));
  LODESTAR_CHECK(shard.ok()) << shard.status().ToString();
  shard_ = *std::move(shard);
  LODESTAR_CHECK(shard_->LoadInitial(config_.job.seed).ok());

  rpc_ = std::make_unique<rpc::ParameterRpc>(
      [this]() -> absl::StatusOr<std::shared_ptr<shard::ParameterShard>> {
        absl::MutexLock lock(&mutex_);
        if (!detached_.ok()) return detached_;
        return shard_;
      },
      executor_.get(),
      rpc::ParameterRpc::Config{.share_memory = config_.shared_memory,
                                .streams = config_.streams,
                                .refusal_pause = config_.refusal_pause,
                                .refusals = refusals_});
  firewall::ConnectionAcceptor::Config listening;
  listening.listen = {"127.0.0.1", 0};
  if (!config_.security.is_plain())
    listening.transport = firewall::ConnectionAcceptor::Transport::kTls;
  auto acceptor = firewall::ConnectionAcceptor::Listen(std::move(listening));
  LODESTAR_CHECK(acceptor.ok()) << acceptor.status().ToString();
  acceptor_ = *std::move(acceptor);
  grpc::ServerBuilder builder;
  wire::ApplyServerOptions(builder);
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      config_.security.MakeServerCredentials(
          [](const security::Identity&, absl::string_view) { return absl::OkStatus(); }));
  builder.RegisterService(rpc_.get());
  server_ = builder.BuildAndStart();
  LODESTAR_CHECK(server_ != nullptr);
  acceptor_->Serve(std::move(connections));
  address_ = absl::StrCat("127.0.0.1:", acceptor_->port());
}

ShardServer::~ShardServer() {
  shard_->Shutdown(absl::UnavailableError("the test is over"));
  acceptor_->Stop();
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
  shard_.reset();
  executor_.reset();
}

void ShardServer::Detach(const std::string& text) {
  absl::MutexLock lock(&mutex_);
  detached_ = absl::UnavailableError(text);
}

std::shared_ptr<grpc::Channel> ShardServer::Channel() const {
  return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(),
                                   wire::DataChannelArguments());
}

client::BulkGrpcTransportConfig ShardServer::TransportConfig(WorkerId worker) const {
  client::BulkGrpcTransportConfig config;
  config.bytes_for_many_channels = 0;
  config.servers = {address_};
  config.buckets = buckets_;
  config.worker = worker;
  config.incarnation = Incarnation(1);
  if (!config_.life_key.empty()) {
    config.life_secret =
        rpc::LifeClaim("", "").SecretOf(config_.life_key, {config.worker, config.incarnation});
  }
  return config;
}

std::unique_ptr<client::ParameterTransport> ShardServer::Transport(WorkerId worker) const {
  return client::MakeBulkGrpcTransport(TransportConfig(worker));
}

void ShardServer::OpenRound(Round round, int num_workers, double learning_rate,
                            int64_t num_samples) {
  sync::RoundPlan plan;
  plan.round = round;
  plan.view = ViewId(1);
  plan.learning_rate = learning_rate;
  for (int i = 1; i <= num_workers; ++i) {
    plan.roster.push_back({WorkerId(i), Incarnation(1), num_samples});
  }
  shard_->SetMembers(plan.view, plan.roster);
  shard_->OpenRound(plan);
}

}  // namespace lodestar
